//! The conformance suite of wires, on copies between mapped memories.

use antiphon_tests::wire_suite;

wire_suite! {
    local => (antiphon_tests::wire::Ends::local),
}
