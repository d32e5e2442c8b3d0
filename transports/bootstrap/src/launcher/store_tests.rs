//! Stores of both dialects, played from the protocol's facts, and what is no Store.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::store::Store;
use super::*;
use crate::BootstrapError;

const LIMIT: Duration = Duration::from_secs(20);

type Content = Arc<(Mutex<HashMap<Vec<u8>, Vec<u8>>>, Condvar)>;

/// A server on the loopback that serves each connection until it is closed. Its thread ends with the tests.
fn serve(serve: impl Fn(TcpStream) + Send + Clone + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    port
}

/// A Store that knows introductions, or one from before.
fn store(introduced: bool, content: Content) -> u16 {
    serve(move |stream| {
        let _ = talk(&stream, introduced, &content);
    })
}

/// One client's requests; ends with an error when it leaves, or where a real Store closes the connection.
fn talk(stream: &TcpStream, introduced: bool, content: &Content) -> std::io::Result<()> {
    let closed = || std::io::Error::other("closed by the Store");
    let mut reader = BufReader::new(stream);
    let mut bytes = |count: usize| -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        reader.read_exact(&mut bytes).map(|()| bytes)
    };
    let mut known = !introduced;
    loop {
        let command = bytes(1)?[0];
        if !known {
            assert_eq!((command, bytes(4)?), (0, 0x3c85_f7ceu32.to_le_bytes().to_vec()));
            known = true;
            continue;
        }
        let mut text = || {
            let length = u64::from_le_bytes(bytes(8)?.try_into().unwrap());
            if length > 1 << 20 { Err(closed()) } else { bytes(length as usize) }
        };
        // By the numbers of Stores that know introductions; a key count is read like a length with a text of its own.
        let command = match (introduced, command) {
            (true, command) => command,
            (false, 8) => 8,
            (false, command) => command + 1,
        };
        let (entries, changed) = &**content;
        match command {
            13 => {
                let nonce = bytes(4)?;
                (&*stream).write_all(&nonce)?;
            }
            1 => {
                let (key, value) = (text()?, text()?);
                entries.lock().unwrap().insert(key, value);
                changed.notify_all();
            }
            3 => {
                let key = text()?;
                let value = entries.lock().unwrap().get(&key).cloned().ok_or_else(closed)?;
                (&*stream).write_all(&(value.len() as u64).to_le_bytes())?;
                // In two parts: answers need not come whole.
                let (first, second) = value.split_at(value.len() / 2);
                (&*stream).write_all(first)?;
                (&*stream).write_all(second)?;
            }
            5 | 6 => {
                assert_eq!(bytes(8)?, 1u64.to_le_bytes());
                let length = u64::from_le_bytes(bytes(8)?.try_into().unwrap());
                let key = bytes(length as usize)?;
                let mut entries = entries.lock().unwrap();
                while command == 6 && !entries.contains_key(&key) {
                    entries = changed.wait(entries).unwrap();
                }
                (&*stream).write_all(&[u8::from(!entries.contains_key(&key))])?;
            }
            8 => {
                let key = text()?;
                let gone = entries.lock().unwrap().remove(&key).is_some();
                (&*stream).write_all(&u64::from(gone).to_le_bytes())?;
            }
            _ => return Err(closed()),
        }
    }
}

fn keys(content: &Content) -> Vec<String> {
    let entries = content.0.lock().unwrap();
    entries.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

#[test]
fn a_text_passes_through_stores_of_both_dialects_and_is_taken_away() {
    for introduced in [true, false] {
        let content = Content::default();
        let port = store(introduced, content.clone());
        let reader = thread::spawn(move || {
            Store::open("localhost", port, Duration::MAX).unwrap().read("antiphon/here")
        });
        let mut writer = Store::open("127.0.0.1", port, LIMIT).unwrap();
        assert_eq!(writer.interface().as_deref(), Some("127.0.0.1"));
        writer.publish("antiphon/here", "there").unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), "there");
        // What a job before left is replaced.
        writer.publish("antiphon/here", "elsewhere").unwrap();
        assert_eq!(
            Store::open("127.0.0.1", port, LIMIT).unwrap().read("antiphon/here").unwrap(),
            "elsewhere"
        );
        writer.forget("antiphon/here");
        assert_eq!(keys(&content), Vec::<String>::new(), "introduced {introduced}");
    }
}

/// What a rank of torchrun finds out, at a Store on this machine.
fn found(rank: u32, port: u16, timeout: &str) -> Found {
    let pairs = [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
        ("ANTIPHON_TIMEOUT", timeout.to_owned()),
    ];
    find(&pairs.into_iter().collect()).unwrap().unwrap()
}

#[test]
fn what_is_no_store_is_an_error_in_time_with_cause_and_cure() {
    type Serve = Arc<dyn Fn(TcpStream) + Send + Sync>;
    // Waits until the client has gone.
    let drain =
        |mut stream: &TcpStream| while stream.read(&mut [0; 256]).is_ok_and(|got| got > 0) {};
    let say = |text: &'static [u8]| -> Serve {
        Arc::new(move |stream: TcpStream| {
            let _ = (&stream).write_all(text);
            drain(&stream);
        })
    };
    // Introductions are answered, and what follows by this.
    let then = |text: &'static [u8]| -> Serve {
        Arc::new(move |mut stream: TcpStream| {
            let mut hello = [0; 10];
            if stream.read_exact(&mut hello).is_ok() {
                let _ = stream.write_all(&hello[6..]);
                let _ = stream.read(&mut [0; 256]);
                let _ = stream.write_all(text);
                // A torn answer: the end comes in good order.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                drain(&stream);
            }
        })
    };
    let cases: [(Serve, &str); 10] = [
        (Arc::new(drop::<TcpStream>), "closed without an answer"),
        (Arc::new(move |stream| drain(&stream)), "does not answer"),
        (say(b"SSH-2.0-OpenSSH_9.2\r\n"), "SSH-2.0"),
        (say(&[0xff; 100_000]), "which is no Store's"),
        (say(&[0xff, 0xff]), "does not answer"),
        (
            Arc::new(|mut stream| {
                drop(std::io::copy(&mut stream.try_clone().unwrap(), &mut stream))
            }),
            "no Store's",
        ),
        (then(b""), "closed without an answer"),
        (then(&[1]), "x01"),
        (then(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), "no Store's"),
        (then(&[0]), "closed without an answer"),
    ];
    for (at, (answer, cause)) in cases.into_iter().enumerate() {
        let port = serve(move |stream| answer(stream));
        let begun = Instant::now();
        // Only silence lasts until the limit.
        let limit = if cause == "does not answer" { "700ms" } else { "60s" };
        let error = found(1, port, limit).connect().map(drop).unwrap_err().to_string();
        assert!(begun.elapsed() < LIMIT, "case {at}: {:?}", begun.elapsed());
        for part in [cause, "ANTIPHON_SECRET_FILE", &format!("127.0.0.1:{port}"), "MASTER_PORT"] {
            assert!(error.contains(part), "case {at}: no {part:?} in: {error}");
        }
    }
}

#[test]
fn values_that_are_torn_or_too_long_or_none_of_ours_are_errors() {
    let length = |length: u64| length.to_le_bytes().to_vec();
    let cases: [(Vec<u8>, &str); 4] = [
        (length(u64::MAX), "allowed up to 4096"),
        ([length(10), b"abc".to_vec()].concat(), "closed without an answer"),
        ([length(3), b"abc".to_vec()].concat(), "a unique id"),
        (vec![3, 0, 0], "closed without an answer"),
    ];
    for (value, cause) in cases {
        let port = serve(move |mut stream| {
            let mut answer = |count: usize, text: &[u8]| {
                let mut request = vec![0; count];
                stream.read_exact(&mut request).and_then(|()| stream.write_all(text)).unwrap();
                request
            };
            let hello = answer(6, b"");
            assert_eq!(hello[5], 13);
            answer(4, &[0xff, 0xff, 0xff, std::process::id().to_le_bytes()[0]]);
            let key = "antiphon/".len() + 32 + "/0".len();
            let mut extra = answer(9, b"").len();
            extra += answer(8 + key, &[0]).len();
            assert_eq!(extra, 9 + 8 + key);
            answer(1 + 8 + key, &value);
        });
        // By itself, for the number in the key.
        let Meeting::Store { job, .. } = found(1, port, "20s").rendezvous else { panic!() };
        let mut store = Store::open("127.0.0.1", port, LIMIT).unwrap();
        let value = store.read(&format!("{job}/0"));
        let error = match value {
            Err(error) => error,
            Ok(text) => store.strange(&text.parse::<crate::tcp::UniqueId>().unwrap_err()),
        };
        let error = error.to_string();
        assert!(error.contains(cause) && error.contains("ANTIPHON_SECRET"), "{cause}: {error}");
    }
}

#[test]
fn nobody_there_and_no_rank_0_are_told_apart() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let error = found(0, port, "300ms").connect().map(drop).unwrap_err().to_string();
    assert!(error.contains("nobody listens there") && error.contains("ANTIPHON_SECRET"), "{error}");
    let port = store(true, Content::default());
    // Long enough to find the Store, on whatever machine.
    let error = found(1, port, "3s").connect().map(drop).unwrap_err().to_string();
    assert!(error.contains("rank 0 did not") && error.contains("ANTIPHON_TIMEOUT"), "{error}");
}

#[test]
fn what_a_dead_rank_0_left_is_replaced_or_told() {
    // Of a job that used the Store before: nobody listens at its address any more.
    let id = crate::tcp::UniqueId::create(Some("127.0.0.1")).unwrap();
    id.retire();
    let leave = |content: &Content, port: u16| {
        let Meeting::Store { job, .. } = found(0, port, "20s").rendezvous else { panic!() };
        let key = format!("{job}/0").into_bytes();
        content.0.lock().unwrap().insert(key, id.to_string().into_bytes());
    };
    let content = Content::default();
    let port = store(true, content.clone());
    leave(&content, port);
    // Long enough for a look at that address, on whatever machine.
    let error = found(1, port, "3s").connect().map(drop).unwrap_err().to_string();
    assert!(error.contains(&id.address().to_string()) && error.contains("listens at"), "{error}");

    let content = Content::default();
    let port = store(true, content.clone());
    leave(&content, port);
    let other = thread::spawn(move || found(1, port, "20s").connect().map(drop));
    let met = found(0, port, "20s").connect().map(drop);
    assert!(met.is_ok() && other.join().unwrap().is_ok(), "{met:?}");
}

#[test]
fn two_ranks_meet_through_a_store_again_and_again() {
    for introduced in [true, false] {
        let content = Content::default();
        let port = store(introduced, content.clone());
        let other = thread::spawn(move || found(1, port, "20s").connect().map(drop));
        let met = found(0, port, "20s").connect();
        assert!(other.join().unwrap().is_ok());
        assert!(met.is_ok());
        assert_eq!(keys(&content), Vec::<String>::new(), "the secret is taken away");
    }
}

#[test]
fn what_the_store_took_is_not_taken_off_the_limit_of_later_calls() {
    let port = store(true, Content::default());
    let other = thread::spawn(move || found(1, port, "3s").connect());
    let met = found(0, port, "3s").connect().unwrap();
    let other = other.join().unwrap().unwrap();
    match met.barrier().unwrap_err() {
        BootstrapError::Timeout { limit, .. } => assert_eq!(limit, Duration::from_secs(3)),
        error => panic!("{error}"),
    }
    drop(other);
}
