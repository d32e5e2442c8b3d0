//! The conformance suite of wires, on copies between mapped memories, of neighbours and of others.

use antiphon_tests::wire_suite;

wire_suite! {
    local => (antiphon_tests::wire::Ends::local),
    shared => (antiphon_tests::wire::Ends::shared),
}
