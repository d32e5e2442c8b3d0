//! The binary interface is the one that was agreed on: `abi/antiphon.txt` has its version and every declaration, and a seal, without
//! which an edit by hand, or a merge, could change it under the same version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Set to write the agreement anew, after the version was raised.
const WRITE: &str = "ANTIPHON_WRITE_ABI";

type Version = (u32, u32);

/// The declarations of a header, a line each, in its order: functions, fields, numbers of enumerations, constants.
fn declarations(header: &str) -> Vec<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code += rest;
    let mut found = Vec::new();
    let mut text = String::new();
    let mut skipped = 0;
    for line in code.lines().map(str::trim) {
        if line.starts_with("#if") && (skipped > 0 || line.contains("__cplusplus")) {
            // What C++ or a later C adds says nothing new.
            skipped += 1;
        } else if line.starts_with("#endif") && skipped > 0 {
            skipped -= 1;
        } else if let Some(constant) = line.strip_prefix("#define ").filter(|_| skipped == 0) {
            if constant.contains(' ') {
                found.push(format!("constant {constant}"));
            }
        } else if skipped == 0 && !line.starts_with('#') {
            text += line;
            text.push(' ');
        }
    }
    let mut owner = String::new();
    let mut piece = String::new();
    for letter in text.chars() {
        match letter {
            '{' => {
                owner = words(&piece).trim_start_matches("typedef ").to_owned();
                piece.clear();
            }
            '}' => {
                found.extend(entry(&owner, &piece));
                owner.clear();
                piece.clear();
            }
            ';' => {
                found.extend(entry(&owner, &piece));
                piece.clear();
            }
            ',' if owner.starts_with("enum") => {
                found.extend(entry(&owner, &piece));
                piece.clear();
            }
            letter => piece.push(letter),
        }
    }
    found
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn entry(owner: &str, piece: &str) -> Option<String> {
    let piece = words(piece);
    // The name behind a structure's brace.
    let is_name = owner.is_empty() && !piece.contains(' ');
    let line = if owner.is_empty() { piece.clone() } else { format!("{owner}: {piece}") };
    (!piece.is_empty() && !is_name).then_some(line)
}

/// The line behind an agreement, of all that is in it.
fn seal(agreed: &[String]) -> String {
    // FNV-1a of 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/.
    let hash = agreed.join("\n").bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("seal {hash:016x}")
}

/// What was agreed on; nothing if that was changed by hand.
fn unsealed(text: &str) -> Option<Vec<String>> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let last = lines.pop()?;
    (last == seal(&lines)).then_some(lines)
}

fn version(declarations: &[String]) -> Version {
    let number = |name: &str| {
        let line = declarations.iter().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    };
    (number("constant ANTIPHON_ABI_MAJOR "), number("constant ANTIPHON_ABI_MINOR "))
}

/// A declaration as it counts in a comparison: of what a structure begins with each field for itself, since structures grow at
/// their ends.
fn counted(line: &str) -> Vec<String> {
    let initial = line.strip_prefix("constant ").and_then(|line| line.split_once("_INIT { "));
    let Some((name, fields)) = initial else { return vec![line.to_owned()] };
    let fields = fields.trim_end_matches(" }").split(", ").enumerate();
    fields.map(|(at, field)| format!("constant {name}_INIT {at}: {field}")).collect()
}

/// The fields of each structure, in their order.
fn structures(lines: &[String]) -> BTreeMap<&str, Vec<&str>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("struct ")) {
        if let Some((name, field)) = line.split_once(": ") {
            all.entry(name).or_default().push(field);
        }
    }
    all
}

/// Structures whose fields lie elsewhere than before: those that begin with their size may have more of them at their ends.
fn moved(old: &[String], new: &[String]) -> Vec<String> {
    let after = structures(new);
    let lies_as_before = |name: &str, fields: &[&str]| {
        let now = after.get(name).map_or(&[][..], |fields| fields);
        let grows = fields.first().is_some_and(|first| first.ends_with(" struct_size"));
        now.starts_with(fields) && (grows || now.len() == fields.len())
    };
    let before = structures(old);
    let moved = before.iter().filter(|(name, fields)| !lies_as_before(name, fields));
    moved.map(|(name, _)| (*name).to_owned()).collect()
}

/// Why an interface may not take the place of another, if it may not.
fn unannounced(old: &[String], new: &[String]) -> Option<String> {
    let numbers = |line: &&String| !line.starts_with("constant ANTIPHON_ABI_M");
    let listed = |lines: &[String]| -> BTreeSet<String> {
        lines.iter().filter(numbers).flat_map(|line| counted(line)).collect()
    };
    let [before, after] = [old, new].map(listed);
    let gone: Vec<_> = before.difference(&after).collect();
    let added: Vec<_> = after.difference(&before).collect();
    let moved = moved(old, new);
    let (was, is) = (version(old), version(new));
    let announced = match (gone.is_empty() && moved.is_empty(), added.is_empty()) {
        (false, _) => is.0 > was.0,
        (true, false) => is > was,
        (true, true) => is == was,
    };
    (!announced).then(|| {
        format!(
            "version {was:?} became {is:?}\n  gone or changed: {gone:#?}\n  structures laid out anew: {moved:?}\n  new: {added:#?}"
        )
    })
}

#[test]
fn the_interface_is_the_one_agreed_on() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/antiphon.h")).expect("the header");
    let new = declarations(&header);
    let path = root.join("abi/antiphon.txt");
    let old = unsealed(&fs::read_to_string(&path).expect("the agreement"));
    let old = old.expect("ffi/abi/antiphon.txt was changed by hand, or merged: take back what it was, and have it written");
    if std::env::var_os(WRITE).is_some() {
        let why = unannounced(&old, &new);
        assert!(
            why.is_none(),
            "raise ANTIPHON_ABI_MAJOR or _MINOR in src/version.rs first: {}",
            why.unwrap()
        );
        let seal = seal(&new);
        fs::write(&path, new.join("\n") + "\n" + &seal + "\n").expect("writable");
        return;
    }
    assert!(
        old == new,
        "the interface is not that of ffi/abi/antiphon.txt: {}\nraise ANTIPHON_ABI_MINOR for additions, ANTIPHON_ABI_MAJOR for \
         all else; then {WRITE}=1 cargo test -p antiphon-ffi --test abi",
        unannounced(&old, &new)
            .unwrap_or_else(|| "in its order, or announced but not written".into())
    );
}

#[test]
fn an_agreement_that_was_changed_by_hand_is_none() {
    let lines = ["constant A 1", "int f(int x)"].map(str::to_owned);
    let text = format!("{}\n{}\n", lines.join("\n"), seal(&lines));
    assert_eq!(unsealed(&text), Some(lines.to_vec()));
    for changed in [text.replace("int x", "long x"), text.replace("int f", "int g(void)\nint f")] {
        assert_eq!(unsealed(&changed), None, "{changed}");
    }
    assert_eq!(unsealed(""), None);
}

#[test]
fn a_change_must_be_announced() {
    let lines = |version: [u32; 2], rest: &[&str]| {
        let [major, minor] = version;
        let numbers = [
            format!("constant ANTIPHON_ABI_MAJOR {major}"),
            format!("constant ANTIPHON_ABI_MINOR {minor}"),
        ];
        numbers.into_iter().chain(rest.iter().map(|&line| line.to_owned())).collect::<Vec<_>>()
    };
    let initial = |fields: &str| lines([1, 2], &[&format!("constant C_INIT {{ {fields} }}")]);
    let grown = unannounced(
        &initial("sizeof(c), 0"),
        &lines([1, 3], &["constant C_INIT { sizeof(c), 0, NULL }"]),
    );
    assert_eq!(grown, None);
    assert!(unannounced(&initial("sizeof(c), 0"), &initial("sizeof(c), 0, NULL")).is_some());
    let changed = unannounced(
        &initial("sizeof(c), 0"),
        &lines([1, 3], &["constant C_INIT { sizeof(c), 1 }"]),
    );
    assert!(changed.is_some());
    let old = lines([1, 2], &["int f(int x)", "enum e: E_A = 0"]);
    for (version, rest, allowed) in [
        ([1, 2], vec!["int f(int x)", "enum e: E_A = 0"], true),
        ([1, 2], vec!["int f(int x)", "enum e: E_A = 0", "int g(void)"], false),
        ([1, 3], vec!["int f(int x)", "enum e: E_A = 0", "int g(void)"], true),
        ([1, 3], vec!["int f(long x)", "enum e: E_A = 0"], false),
        ([1, 3], vec!["int f(int x)", "enum e: E_A = 1"], false),
        ([1, 9], vec!["int f(int x)"], false),
        ([2, 0], vec!["int f(int x)"], true),
        ([1, 1], vec!["int f(int x)", "enum e: E_A = 0"], false),
    ] {
        let why = unannounced(&old, &lines(version, &rest));
        assert_eq!(why.is_none(), allowed, "{version:?} {rest:?}: {why:?}");
    }
}

#[test]
fn fields_stay_where_they_are_within_a_major_version() {
    let announced = |[old, new]: [&[&str]; 2], version: Version| {
        let lines = |(major, minor): Version, fields: &[&str]| {
            let numbers = [
                format!("constant ANTIPHON_ABI_MAJOR {major}"),
                format!("constant ANTIPHON_ABI_MINOR {minor}"),
            ];
            let fields = fields.iter().map(|field| format!("struct {field}"));
            numbers.into_iter().chain(fields).collect::<Vec<_>>()
        };
        unannounced(&lines((1, 2), old), &lines(version, new)).is_none()
    };
    let sized = ["s: uint64_t struct_size", "s: int a", "s: int b", "t: int x"];
    let [size, a, b, x] = sized;
    let plain = ["t: int x", "t: int y"];
    for (old, new, minor) in [
        (&sized[..], vec![size, a, b, "s: int c", x], true),
        (&sized, vec![x, size, a, b, "s: int c"], true),
        (&sized, vec![size, b, a, x], false),
        (&sized, vec![size, a, "s: int c", b, x], false),
        (&sized, vec![size, a, b, x, "u: int z"], true),
        // What does not say its size is as long as it was.
        (&plain, vec!["t: int x", "t: int y", "t: int z"], false),
        (&plain, vec!["t: int y", "t: int x"], false),
    ] {
        assert_eq!(announced([old, &new], (1, 3)), minor, "{new:?}");
        assert!(announced([old, &new], (2, 0)) && !announced([old, &new], (1, 2)), "{new:?}");
    }
}

#[test]
fn declarations_are_read_whatever_their_form() {
    let header = "/* x; */\n#define A_B 7\n#define GUARD\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\
                  enum e\n#if defined(__cplusplus)\n  : int32_t\n#endif\n {\n A = 0,\n /* y */ B = -1,\n};\n\
                  typedef struct s {\n  int x;\n  char y[8];\n} s;\nint f(int a,\n      int b);\n";
    let expected = [
        "constant A_B 7",
        "enum e: A = 0",
        "enum e: B = -1",
        "struct s: int x",
        "struct s: char y[8]",
        "int f(int a, int b)",
    ];
    assert_eq!(declarations(header), expected);
}
