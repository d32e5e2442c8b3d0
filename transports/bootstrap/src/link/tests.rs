//! A link whose other end is a bare socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

use super::*;
use crate::absent::Gone;
use crate::error::BootstrapError;
use crate::frame::HEADER;
use crate::group::Member;
use crate::refusing::refuse;
use crate::{Bootstrap, Handler, Lost, PeerInfo};

/// Rank 0 of a world of 2, and the bare socket of its peer.
fn half_a_mesh() -> (Arc<dyn Bootstrap>, UnixStream) {
    let (end, mut peers) = part_of_a_mesh(0, 2);
    (end, peers.remove(0))
}

/// A rank of a world, and the bare sockets of its peers.
fn part_of_a_mesh(rank: u32, world: u32) -> (Arc<dyn Bootstrap>, Vec<UnixStream>) {
    part_of_a_mesh_within(rank, world, Duration::from_secs(20))
}

/// The same, with this limit.
fn part_of_a_mesh_within(
    rank: u32,
    world: u32,
    limit: Duration,
) -> (Arc<dyn Bootstrap>, Vec<UnixStream>) {
    let peer = PeerInfo { pid: 4711, same_process: false, node: 0, address: None };
    let (mut links, mut peers) = (Vec::new(), Vec::new());
    let all = vec![peer; world as usize];
    let mesh = Mesh::new(rank, all, limit, [0; 32], |mesh| {
        for peer in 0..world {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            let link = Link::new(Pipe::known(ours.into(), 0), peer, mesh)?;
            links.push(Some(link).filter(|_| peer != rank));
            peers.extend(Some(theirs).filter(|_| peer != rank));
        }
        Ok(Box::new(Links { links: links.clone() }))
    });
    let mesh = mesh.unwrap();
    links.iter().flatten().for_each(|link| link.start(None).unwrap());
    (Member::whole(mesh), peers)
}

/// As where more descriptors are on their way than this user's processes may have.
#[test]
fn who_is_refused_by_the_kernel_asks_again() {
    let (end, mut peers) = part_of_a_mesh(1, 2);
    let mut peer = peers.remove(0);
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let begun = std::thread::spawn(move || {
        // The control thread is not.
        refuse(libc::SYS_sendmsg, libc::ETOOMANYREFS);
        (end.exchange_begin(b"there").map(drop), end)
    });
    let (begun, _end) = begun.join().unwrap();
    begun.unwrap();
    let mut header = [0; HEADER];
    peer.read_exact(&mut header).unwrap();
    let mut bytes = [0; 64];
    let read = peer.read(&mut bytes).unwrap();
    assert!(bytes[..read].ends_with(b"there"), "{:?}", &bytes[..read]);
}

/// In a process of its own, all threads of which are refused.
#[test]
fn who_is_always_refused_by_the_kernel_neither_spins_nor_waits_for_ever() {
    const CHILD: &str = "ANTIPHON_TEST_REFUSED";
    if std::env::var_os(CHILD).is_none() {
        let name =
            "link::tests::who_is_always_refused_by_the_kernel_neither_spins_nor_waits_for_ever";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = [ended.stdout, ended.stderr].concat();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&said));
        return;
    }
    refuse(libc::SYS_sendmsg, libc::ETOOMANYREFS);
    let (end, _peers) = part_of_a_mesh_within(1, 2, Duration::from_secs(4));
    let error = end.barrier().unwrap_err();
    let busy = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    assert!(matches!(error, BootstrapError::PeerLost { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("for 2 s: ") && text.contains("raise RLIMIT_NOFILE"), "{text}");
    assert!(busy.tv_sec == 0 && busy.tv_nsec < 200_000_000, "{busy:?}");
}

fn frame(patches: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = Frame::plain(Kind::Message, Vec::new()).header().to_vec();
    for (at, patch) in patches {
        bytes[*at..at + patch.len()].copy_from_slice(patch);
    }
    bytes
}

#[test]
fn a_peer_that_sends_garbage_is_lost_with_the_reason() {
    let half = frame(&[(16, &[9])]);
    for (bytes, reason) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "do not begin a frame"),
        (frame(&[(8, &[99])]), "protocol version 99"),
        (frame(&[(10, &[99])]), "unknown kind 99"),
        (frame(&[(10, &[24])]), "a Go frame after the job had formed"),
        (frame(&[(16, &[255; 4])]), "a frame of 4294967295 bytes"),
        (frame(&[(20, &[3])]), "promises 3 descriptors, of which 0 arrived"),
        (half, "closed without a goodbye"),
        // As that of a process that ended, and of one that took this rank for lost.
        (Vec::new(), "closed without a goodbye (the process died, or gave this rank up)"),
    ] {
        let (end, mut peer) = half_a_mesh();
        peer.write_all(&bytes).unwrap();
        if reason.starts_with("closed") {
            drop(peer);
        }
        let error = end.barrier().unwrap_err();
        assert!(matches!(error, BootstrapError::PeerLost { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("rank 1 (pid 4711)") && text.contains(reason), "{text}");
        assert!(end.check().is_err());
    }
}

#[test]
fn a_link_whose_mesh_is_gone_is_let_go_of() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let link = Link::new(Pipe::known(ours.into(), 0), 1, &Weak::new()).unwrap();
    link.start(None).unwrap();
    drop(link);
    theirs.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    theirs.write_all(b"?").unwrap();
    match theirs.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("its socket stays: {other:?}"),
    }
}

#[test]
fn a_goodbye_counts_though_the_socket_breaks_under_our_own_writes() {
    let (end, mut peer) = half_a_mesh();
    let bye = Frame::plain(Kind::Bye, Vec::new()).header();
    peer.write_all(&bye).unwrap();
    // Unread input makes the kernel reset the connection instead of closing it.
    let _ = end.exchange_begin(b"unread").map(drop);
    drop(peer);
    let error = end.barrier().unwrap_err();
    assert!(matches!(error, BootstrapError::PeerLeft { .. }), "{error}");
}

#[test]
fn who_died_is_named_though_the_gatherer_left_for_it() {
    let bye = Frame::plain(Kind::Bye, Vec::new()).header();
    for first in [true, false] {
        let (end, mut peers) = part_of_a_mesh(1, 3);
        let (dead, mut gatherer) = (peers.pop().unwrap(), peers.pop().unwrap());
        let heard = |wanted: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !wanted() {
                assert!(began.elapsed() < Duration::from_secs(20), "nothing is heard");
                std::thread::yield_now();
            }
        };
        let mut dead = Some(dead);
        if first {
            drop(dead.take());
            heard(&|| end.check().is_err());
        }
        gatherer.write_all(&bye).unwrap();
        heard(&|| end.has_left(0).unwrap());
        // Otherwise its end shows only once the call has seen that the gatherer is gone.
        let mut call = end.barrier_begin().unwrap();
        if let Some(dead) = dead {
            assert_eq!(call.poll(), Ok(None));
            drop(dead);
            // Else the time in which that may show could pass before it does.
            heard(&|| end.check().is_err());
        }
        let error = call.wait().unwrap_err();
        let BootstrapError::PeerLost { peer, .. } = &error else { panic!("{error}") };
        assert_eq!(peer.rank, 2);
    }
    // Where nobody died, the gatherer is to blame.
    let (end, mut peers) = part_of_a_mesh(1, 3);
    peers[0].write_all(&bye).unwrap();
    let error = end.barrier().unwrap_err();
    let BootstrapError::PeerLeft { peer, .. } = &error else { panic!("{error}") };
    assert_eq!(peer.rank, 0);
}

/// Rank 2 was lost, or 3, and the rank before it has left for that; the rank in question gathers, or asks who does.
#[test]
fn of_those_that_are_missed_the_lost_one_is_named() {
    let bye = Frame::plain(Kind::Bye, Vec::new()).header();
    for (rank, [left, lost]) in [(0, [1, 2]), (1, [2, 3])] {
        let (end, mut peers) = part_of_a_mesh(rank, lost + 1);
        // There is none of the rank itself.
        peers.pop();
        peers[left as usize - 1].write_all(&bye).unwrap();
        let began = Instant::now();
        while !(end.check().is_err() && end.has_left(left).unwrap()) {
            assert!(began.elapsed() < Duration::from_secs(20), "nothing is heard");
            std::thread::yield_now();
        }
        let mut call = end.barrier_begin().unwrap();
        if rank == 1 {
            assert_eq!(call.poll(), Ok(None));
            let present: Vec<u8> = [0u32, 1].into_iter().flat_map(u32::to_le_bytes).collect();
            let answer = Frame::plain(Kind::Answer, present.clone());
            peers[0].write_all(&[&answer.header()[..], &present].concat()).unwrap();
        }
        let error = call.wait().unwrap_err();
        let BootstrapError::PeerLost { peer, .. } = &error else { panic!("{error}") };
        assert_eq!(peer.rank, lost);
    }
}

/// Notes when it is told that a peer is lost.
struct Noting(u64, Arc<Mutex<Vec<u64>>>);

impl Handler for Noting {
    fn message(&self, _: u32, _: u32, _: &[u8], _: Vec<OwnedFd>) {}

    fn peer_lost(&self, _: u32, _: &Lost) {
        lock(&self.1).push(self.0);
    }

    fn aborted(&self, _: u32, _: &str) {}
}

#[test]
fn of_the_groups_that_a_lost_rank_is_of_the_first_hears_first() {
    let (end, peer) = half_a_mesh();
    let told = Arc::new(Mutex::new(Vec::new()));
    let groups: Vec<_> = (0..16).map(|id| end.group(id, &[0, 1]).unwrap()).collect();
    for (number, group) in (0..).zip(&groups) {
        group.subscribe(1, Arc::new(Noting(number, told.clone()))).unwrap();
    }
    drop(peer);
    let began = Instant::now();
    while lock(&told).len() < groups.len() {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing is heard");
        std::thread::yield_now();
    }
    assert!(lock(&told).is_sorted(), "{told:?}");
}

/// Notes whether the mesh knew of a loss already when the carrier was told.
struct Telling(Weak<Mesh>, Arc<Mutex<Vec<bool>>>);

impl Carrier for Telling {
    fn send(&self, _: u32, _: Frame) {}
    fn close(&self, _: &[Frame]) {}

    fn saw_go(&self, peer: u32, _: &Gone) {
        let mesh = self.0.upgrade().unwrap();
        let knew = lock(&mesh.state).absent.gone.contains_key(&peer);
        lock(&self.1).push(knew);
    }
}

#[test]
fn others_are_told_of_a_death_before_a_caller_of_this_rank_may_leave_for_it() {
    let peer = PeerInfo { pid: 4711, same_process: false, node: 0, address: None };
    let knew = Arc::new(Mutex::new(Vec::new()));
    let mesh = Mesh::new(0, vec![peer; 2], Duration::from_secs(20), [0; 32], |mesh| {
        Ok(Box::new(Telling(mesh.clone(), knew.clone())))
    });
    let mesh = mesh.unwrap();
    mesh.lose(1, "it fell".to_owned(), false);
    assert_eq!(*lock(&knew), [false]);
    assert!(Member::whole(mesh).check().is_err());
}
