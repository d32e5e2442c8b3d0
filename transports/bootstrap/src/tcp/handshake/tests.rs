//! Handshakes that go well, and every way in which they must not.

use super::*;

const KEY: [u8; 32] = [7; 32];

fn ends(key: [u8; 32], nonces: [u8; 2]) -> (Caller, [u8; RECORD], Listener) {
    let (caller, hello) = Caller::new(key, Purpose::Link, 3, 5, [nonces[0]; 32]);
    (caller, hello, Listener::new(KEY, 5, [nonces[1]; 32]))
}

fn sent(step: Step) -> [u8; RECORD] {
    let Step::Send(Some(record)) = step else { panic!("{step:?}") };
    record
}

/// All records of a handshake that succeeds: hello, challenge, proof, verdict.
fn recording(nonces: [u8; 2]) -> [[u8; RECORD]; 4] {
    let (mut caller, hello, mut listener) = ends(KEY, nonces);
    let challenge = sent(listener.feed(&hello));
    let proof = sent(caller.feed(&challenge));
    let proven = |rank| Step::Proven { purpose: Purpose::Link, rank };
    assert_eq!(listener.feed(&proof), proven(3));
    let verdict = listener.verdict(Verdict::Welcome);
    assert_eq!(caller.feed(&verdict), proven(5));
    [hello, challenge, proof, verdict]
}

#[test]
fn both_ends_are_proven_whatever_the_cuts() {
    let [hello, challenge, proof, verdict] = recording([1, 2]);
    for cut in 1..RECORD {
        let (mut caller, _, mut listener) = ends(KEY, [1, 2]);
        let mut feed = |to_caller: bool, record: &[u8; RECORD]| {
            let (first, second) = record.split_at(cut);
            let mut step = |bytes: &[u8]| match to_caller {
                true => caller.feed(bytes),
                false => listener.feed(bytes),
            };
            assert_eq!(step(first), Step::Send(None), "cut at {cut}");
            step(second)
        };
        assert_eq!(sent(feed(false, &hello)), challenge);
        assert_eq!(sent(feed(true, &challenge)), proof);
        assert!(matches!(feed(false, &proof), Step::Proven { rank: 3, .. }));
        assert!(matches!(feed(true, &verdict), Step::Proven { rank: 5, .. }));
    }
}

#[test]
fn a_replayed_handshake_proves_nothing() {
    let [hello, challenge, proof, verdict] = recording([1, 2]);
    // To the listener: the same hello and proof, at a later nonce of its own.
    let (mut caller, _, mut listener) = ends(KEY, [1, 9]);
    sent(listener.feed(&hello));
    assert!(matches!(listener.feed(&proof), Step::Fail(Failure::Secret(3), Some(_))));
    // To the caller, whose nonce is a later one.
    let (mut later, ..) = ends(KEY, [8, 0]);
    sent(later.feed(&challenge));
    assert_eq!(later.feed(&verdict), Step::Fail(Failure::Secret(5), None));
    // Its own proof, reflected, is no verdict.
    let proof = sent(caller.feed(&challenge));
    let mut reflected = proof;
    reflected[10] = VERDICT;
    assert_eq!(caller.feed(&reflected), Step::Fail(Failure::Secret(5), None));
}

#[test]
fn another_secret_is_noticed_on_both_sides() {
    let (mut caller, hello, mut listener) = ends([8; 32], [1, 2]);
    let challenge = sent(listener.feed(&hello));
    let proof = sent(caller.feed(&challenge));
    let Step::Fail(Failure::Secret(3), Some(verdict)) = listener.feed(&proof) else { panic!() };
    assert_eq!(caller.feed(&verdict), Step::Fail(Failure::Secret(5), None));
    // A listener without the secret that says welcome all the same.
    let (mut caller, ..) = ends([8; 32], [1, 2]);
    sent(caller.feed(&challenge));
    assert_eq!(
        caller.feed(&listener.verdict(Verdict::Welcome)),
        Step::Fail(Failure::Secret(5), None)
    );
}

#[test]
fn every_changed_bit_is_noticed() {
    let records = recording([1, 2]);
    for (at, record) in records.iter().enumerate() {
        for bit in 0..RECORD * 8 {
            let (mut caller, hello, mut listener) = ends(KEY, [1, 2]);
            let mut bad = *record;
            bad[bit / 8] ^= 1 << (bit % 8);
            let mut proven = 0;
            let mut run = || -> Option<()> {
                let next = |own, turn| if at == turn { bad } else { own };
                let Step::Send(Some(challenge)) = listener.feed(&next(hello, 0)) else {
                    return None;
                };
                let Step::Send(Some(proof)) = caller.feed(&next(challenge, 1)) else { return None };
                let Step::Proven { .. } = listener.feed(&next(proof, 2)) else { return None };
                proven += 1;
                let verdict = listener.verdict(Verdict::Welcome);
                let Step::Proven { .. } = caller.feed(&next(verdict, 3)) else { return None };
                proven += 1;
                Some(())
            };
            run();
            // The last record is the caller's to judge; the word of a proof and its listener say nothing.
            let idle = at == 2 && (bit / 8 == 11 || (16..20).contains(&(bit / 8)));
            // The word of a challenge says nothing either.
            let idle = idle || at == 1 && bit / 8 == 11;
            let most = if idle { 2 } else { usize::from(at == 3) };
            assert_eq!(proven, most, "record {at}, bit {bit}");
        }
    }
}

#[test]
fn garbage_is_refused_at_its_first_wrong_byte_and_keeps_no_memory() {
    for garbage in
        [&b"GET / HTTP/1.1\r\n"[..], &[0x16, 3, 1, 2, 0, 1], &[0], b"ANTIPHOX", &[255; 9000]]
    {
        let (mut caller, _, mut listener) = ends(KEY, [1, 2]);
        assert_eq!(listener.feed(garbage), Step::Fail(Failure::Stranger, None));
        assert_eq!(caller.feed(garbage), Step::Fail(Failure::Stranger, None));
        assert!(listener.incoming.0.len() <= RECORD);
    }
    // Steps out of their order.
    let records = recording([1, 2]);
    for record in &records[1..] {
        assert_eq!(ends(KEY, [1, 2]).2.feed(record), Step::Fail(Failure::Stranger, None));
    }
    for at in [0, 2, 3] {
        assert_eq!(ends(KEY, [1, 2]).0.feed(&records[at]), Step::Fail(Failure::Stranger, None));
    }
}

#[test]
fn versions_are_told_after_ten_bytes() {
    let (mut caller, mut hello, mut listener) = ends(KEY, [1, 2]);
    hello[8] = 9;
    let Step::Fail(Failure::Version(9), Some(mut answer)) = listener.feed(&hello[..10]) else {
        panic!("a hello of version 9 was not refused");
    };
    assert_eq!(answer[8..10], VERSION.to_le_bytes());
    answer[8] = 9;
    assert_eq!(caller.feed(&answer), Step::Fail(Failure::Version(9), None));
}

#[test]
fn verdicts_are_believed_only_with_a_proof() {
    for (verdict, failure) in
        [(Verdict::Crossed, Failure::Crossed), (Verdict::Unexpected, Failure::Unexpected)]
    {
        let [_, challenge, proof, _] = recording([1, 2]);
        let (mut caller, hello, mut listener) = ends(KEY, [1, 2]);
        sent(listener.feed(&hello));
        listener.feed(&proof);
        sent(caller.feed(&challenge));
        let mut forged = listener.verdict(Verdict::Welcome);
        forged[11] = verdict as u8;
        assert_eq!(caller.clone().feed(&forged), Step::Fail(Failure::Secret(5), None));
        assert_eq!(caller.feed(&listener.verdict(verdict)), Step::Fail(failure, None));
    }
}
