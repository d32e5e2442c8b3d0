//! A program whose ranks meet where NCCL's variables say.

mod tools;

use std::path::Path;
use tools::{build, header, link, on_host, run};

/// What else says where ranks meet, or lets them.
const OTHERS: [&str; 7] = [
    "ANTIPHON_SECRET",
    "ANTIPHON_SECRET_FILE",
    "ANTIPHON_INSECURE",
    "ANTIPHON_INTERFACE",
    "MSCCLPP_SOCKET_IFNAME",
    "NCCL_COMM_ID",
    "NCCL_SOCKET_IFNAME",
];

#[test]
fn ranks_meet_where_the_variables_of_nccl_say() {
    let Some(header) = header() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("meeting");
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join("program");
    let library = link(&folder, &["libnccl.so.2"], "libantiphon_nccl.so");
    run(build(&header, "meeting.cpp", &program).arg(library));
    for way in ["named", "unproven", "interface", "nowhere"] {
        let mut command = on_host(&program);
        command.arg(way).env("LD_LIBRARY_PATH", &folder);
        for variable in OTHERS {
            command.env_remove(variable);
        }
        if way == "named" {
            command.env("ANTIPHON_SECRET", "of these processes");
        }
        let out = run(&mut command);
        assert!(out.contains("meeting: ok"), "{way}: {out}");
    }
}
