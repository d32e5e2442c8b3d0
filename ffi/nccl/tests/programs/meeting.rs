//! A program whose ranks meet where NCCL's variables say, or by an id, whoever made it.

use crate::tools::{on_host, program, run};

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
fn ranks_meet_where_the_variables_of_nccl_say_and_by_an_id_of_any_process() {
    let Some((program, folder)) = program("meeting") else { return };
    for way in ["named", "unproven", "interface", "nowhere", "other", "none"] {
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
