//! Wires through the C interface: the example in C, compiled here, and Rust wires that are exported and taken back, all
//! through the conformance suite; and plugins that cannot be used.

use antiphon_port::plugin::{self, abi, export};
use antiphon_port::tcp::Options;
use antiphon_port::{LocalWire, MappedRegions, Settings, TcpDriver, Wire, WireDriver, WireError};
use antiphon_tests::Folder;
use antiphon_tests::wire::example::{SHARED, compile, example};
use antiphon_tests::wire::gpu::OnGpu;
use antiphon_tests::wire::{Ends, Subject, Table};
use antiphon_tests::wire_cases;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// A fresh folder for what a test makes.
fn folder() -> Folder {
    Folder::new(env!("CARGO_TARGET_TMPDIR"), "wire-plugin").unwrap()
}

/// The example, compiled once.
static EXAMPLE: LazyLock<Option<Arc<dyn WireDriver>>> = LazyLock::new(|| {
    let made = folder();
    let library = example(&made)?;
    Some(plugin::load(&library).unwrap())
});

macro_rules! example_case_tests {
    ([] $($module:ident::$case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let Some(example) = &*super::EXAMPLE else { return };
                let open = |ranks| super::Ends::open(&**example, None, ranks).unwrap();
                let test = concat!("wire_plugin::example::", stringify!($case));
                antiphon_tests::wire::$module::$case(&super::Subject::new(test, open));
            }
        )*
    };
}

mod example {
    super::wire_cases! { example_case_tests }
}

/// The case about such memory passes over wires that do not take it.
#[test]
fn the_example_takes_memory_of_gpus() {
    let Some(example) = &*EXAMPLE else { return };
    let ends = Ends::open(&**example, None, 1).unwrap();
    ends.register(0, Arc::new(OnGpu::new(4096)));
}

/// What local wires of the exported driver find their peers' memory in, by the name of the interface they ask for.
static TABLES: LazyLock<Mutex<HashMap<String, Arc<Table>>>> = LazyLock::new(Mutex::default);

#[derive(Debug)]
struct LocalDriver;

impl WireDriver for LocalDriver {
    fn name(&self) -> &str {
        "local"
    }

    fn open(&self, settings: &Settings) -> Result<Arc<dyn Wire>, WireError> {
        let table = TABLES.lock().unwrap()[settings.interface.as_deref().unwrap()].clone();
        Ok(Arc::new(LocalWire::new(table as Arc<dyn MappedRegions>)))
    }
}

struct Local;

impl export::Exported for Local {
    const NAME: &'static CStr = c"exported";

    fn driver() -> Result<Arc<dyn WireDriver>, WireError> {
        Ok(Arc::new(LocalDriver))
    }
}

static LOCAL: abi::Plugin = export::table::<Local>();

/// Ends of an exported wire, which looks its peers' memory up in a table of these ends alone.
fn exported(ranks: u32) -> Ends {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // SAFETY: a table of this program's, which is valid for ever.
    let driver = unsafe { plugin::adopt(&raw const LOCAL, "exported") }.unwrap();
    let name = NUMBER.fetch_add(1, Ordering::Relaxed).to_string();
    let table = Arc::new(Table::default());
    TABLES.lock().unwrap().insert(name.clone(), Arc::clone(&table));
    let ends = Ends::open(&*driver, Some(&name), ranks).unwrap();
    TABLES.lock().unwrap().remove(&name);
    Ends { table: Some(table), loss: None, ..ends }
}

struct Tcp;

impl export::Exported for Tcp {
    const NAME: &'static CStr = c"exported-tcp";

    fn driver() -> Result<Arc<dyn WireDriver>, WireError> {
        let mut options = Options::default();
        // A busy machine may take its time.
        options.patience = Duration::from_secs(12);
        Ok(Arc::new(TcpDriver::new(options)))
    }
}

static TCP: abi::Plugin = export::table::<Tcp>();

fn exported_tcp(ranks: u32) -> Ends {
    // SAFETY: a table of this program's, which is valid for ever.
    let driver = unsafe { plugin::adopt(&raw const TCP, "exported-tcp") }.unwrap();
    Ends::open(&*driver, Some("127.0.0.1"), ranks).unwrap()
}

antiphon_tests::wire_suite! {
    exported => (crate::exported),
    exported_tcp => (crate::exported_tcp),
}

/// The reason and the cure with which a file is unavailable.
fn unavailable(path: &Path) -> String {
    match plugin::load(path) {
        Err(error @ WireError::Unavailable { .. }) => error.to_string(),
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn files_that_are_no_plugin_are_unavailable_with_the_reason_and_the_cure() {
    let place = folder();
    let missing = unavailable(&place.join("libantiphon_wire_missing.so"));
    assert!(missing.contains("wire missing is unavailable: there is no plugin file"), "{missing}");
    let folder = unavailable(place.path());
    assert!(folder.contains("there is no plugin file"), "{folder}");
    let text = place.join("libantiphon_wire_text.so");
    fs::write(&text, "not a library").unwrap();
    let garbage = unavailable(&text);
    assert!(garbage.contains("cannot load") && garbage.contains("file too short"), "{garbage}");
}

#[test]
fn plugins_that_do_not_fit_are_unavailable_with_the_reason_and_the_cure() {
    let table = |fields: &str| {
        format!(
            "#include <antiphon_wire.h>\n\
             static int32_t init(const antiphon_wire_host *h, antiphon_wire_error *e)\n\
             {{ (void)h; e->reason[0] = 'x'; e->reason[1] = 0; return ANTIPHON_WIRE_UNAVAILABLE; }}\n\
             const antiphon_wire_plugin *antiphon_wire_plugin_v1(void) {{\n\
             static const antiphon_wire_plugin p = {{ {fields} .init = init }}; return &p; }}\n"
        )
    };
    let right = ".magic = ANTIPHON_WIRE_MAGIC, .struct_bytes = sizeof(antiphon_wire_plugin),";
    let cases = [
        ("symbol", "int antiphon = 1;\n".to_owned(), "does not export antiphon_wire_plugin_v1"),
        ("magic", table(".abi = 1,"), "begins with"),
        ("version", table(&format!("{right} .abi = 9,")), "interface version 9, this is 1"),
        ("null", table(&format!("{right} .abi = ANTIPHON_WIRE_ABI,")), "function 1 of"),
        (
            "library",
            "int elsewhere(void);\nint antiphon_wire_plugin_v1(void);\n\
             int antiphon_wire_plugin_v1(void) { return elsewhere(); }\n"
                .to_owned(),
            "undefined symbol: elsewhere",
        ),
    ];
    let place = folder();
    for (name, source, reason) in cases {
        let (code, library) = (place.join(format!("{name}.c")), place.join(format!("{name}.so")));
        fs::write(&code, source).unwrap();
        let Some(()) = compile(&SHARED[..2], std::slice::from_ref(&code), &library) else { return };
        let error = unavailable(&library);
        assert!(error.contains(reason), "{name}: {error}");
    }
}

/// What is larger or elsewhere in C than in Rust would be read wrongly by the other side.
#[test]
fn the_header_and_its_mirror_lay_structs_out_alike() {
    let mut code = String::from(
        "#include <antiphon_wire.h>\n#include <stdio.h>\n\
         #define S(t) printf(#t \" %zu\\n\", sizeof(antiphon_wire_##t));\n\
         #define F(t, f) printf(#t \".\" #f \" %zu\\n\", offsetof(antiphon_wire_##t, f));\n\
         #define N(n) printf(#n \" %llu\\n\", (unsigned long long)ANTIPHON_WIRE_##n);\n\
         int main(void) {\n",
    );
    let mut wanted = String::new();
    macro_rules! structs {
        ($($name:ident $mirror:ident { $($field:ident)* })*) => {
            $(
                code += &format!("S({})\n", stringify!($name));
                wanted += &format!("{} {}\n", stringify!($name), size_of::<abi::$mirror>());
                $(
                    let field = stringify!($field);
                    code += &format!("F({}, {field})\n", stringify!($name));
                    let offset = std::mem::offset_of!(abi::$mirror, $field);
                    wanted += &format!("{}.{field} {offset}\n", stringify!($name));
                )*
            )*
        };
    }
    structs! {
        error Error { struct_bytes reserved reason cure }
        bytes Bytes { struct_bytes reserved data capacity length }
        host Host { struct_bytes abi name }
        settings Settings { struct_bytes rank key interface_name device }
        peer Peer { struct_bytes rank pid flags }
        memory Memory { struct_bytes backend number address bytes keep release }
        dma_buf DmaBuf { struct_bytes descriptor offset }
        write Write { struct_bytes unit source from region to bytes }
        plugin Plugin { magic abi struct_bytes name }
    }
    macro_rules! functions {
        ($($field:ident)*) => {
            $(
                let field = stringify!($field);
                code += &format!("F(plugin, {field})\n");
                let offset = std::mem::offset_of!(abi::Plugin, functions)
                    + std::mem::offset_of!(abi::Functions, $field);
                wanted += &format!("plugin.{field} {offset}\n");
            )*
        };
    }
    functions! {
        init wire_open wire_close wire_describe wire_reach memory_register memory_deregister opening_open opening_address
        opening_connect opening_close link_accept link_retire link_write link_signal link_posted link_completed
        link_progress link_descriptor link_arm link_stop link_describe link_close
    }
    code += "F(plugin, memory_register_dma_buf)\n";
    let offset = std::mem::offset_of!(abi::Plugin, more)
        + std::mem::offset_of!(abi::More, memory_register_dma_buf);
    wanted += &format!("plugin.memory_register_dma_buf {offset}\n");
    macro_rules! numbers {
        ($($c:ident $rust:ident)*) => {
            $(
                code += &format!("N({})\n", stringify!($c));
                wanted += &format!("{} {}\n", stringify!($c), abi::$rust);
            )*
        };
    }
    numbers! {
        MAGIC MAGIC ABI ABI REVISION REVISION KEY_BYTES KEY_BYTES TEXT_BYTES TEXT_BYTES
        OK OK FULL FULL UNAVAILABLE UNAVAILABLE UNSUPPORTED UNSUPPORTED INVALID INVALID LOST LOST SYSTEM SYSTEM
        BYTES BYTES PACKETS PACKETS HOST HOST CUDA CUDA ROCM ROCM
        SAME_PROCESS SAME_PROCESS SAME_NODE SAME_NODE PROCESS_ACCESS PROCESS_ACCESS
    }
    code += "return 0; }\n";
    let place = folder();
    let (source, program) = (place.join("layout.c"), place.join("layout"));
    fs::write(&source, code).unwrap();
    let Some(()) = compile(&[], std::slice::from_ref(&source), &program) else { return };
    let output = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
}
