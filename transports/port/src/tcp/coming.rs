//! A link that is not up yet: one side dials, the other waits at its door, and both have a time limit.

use super::dial::{Connected, Dial, Way};
use super::door::{Door, Lobby, Watch};
use super::protocol::hello::{Hello, Token};
use super::socket;
use rustix::event::epoll::EventFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the connections of a link come.
#[derive(Debug)]
enum Side {
    Dials { way: Way, dials: Vec<Dial> },
    Waits { token: Token, _watch: Watch },
}

/// A link that is coming up.
#[derive(Debug)]
pub(super) struct Coming {
    side: Side,
    connections: Vec<Option<Connected>>,
    limit: Duration,
    until: Instant,
    /// Readable when the time is over; part of the link's descriptor as long as this lives.
    _timer: OwnedFd,
    /// Why nothing will come of it, found when it began.
    failed: Option<String>,
    silence: Duration,
}

/// What both ways of coming up need.
pub(super) struct Limits {
    /// For how many connections to wait.
    pub stripes: u16,
    /// How long.
    pub limit: Duration,
    /// After how long a connection that does not answer is lost.
    pub silence: Duration,
}

impl Coming {
    fn new(side: Side, limits: &Limits, lobby: &Lobby) -> Result<Self, String> {
        let Limits { stripes, limit, silence } = *limits;
        let timer = socket::timer(limit).map_err(|error| error.to_string())?;
        let watched = socket::watch(&lobby.poller, &timer, EventFlags::empty(), EventFlags::IN);
        watched.map_err(|error| error.to_string())?;
        let connections = (0..stripes).map(|_| None).collect();
        let until = Instant::now() + limit;
        Ok(Coming { side, connections, limit, until, _timer: timer, failed: None, silence })
    }

    /// Dials: `hello` says who, from which opening and to which.
    pub fn dial(way: Way, hello: &Hello, limits: &Limits, lobby: &Lobby) -> Result<Self, String> {
        let side = Side::Dials { way, dials: Vec::new() };
        let mut coming = Self::new(side, limits, lobby)?;
        let Side::Dials { way, dials } = &mut coming.side else { return Ok(coming) };
        for stripe in 0..limits.stripes {
            let (stripes, hello) = (limits.stripes, hello.clone());
            // Told by the link, as other losses are.
            match Dial::begin(way, Hello { stripe, stripes, ..hello }, &lobby.poller) {
                Ok(dial) => dials.push(dial),
                Err(why) => coming.failed = Some(why),
            }
        }
        Ok(coming)
    }

    /// Waits for connections from the opening `token` of the peer.
    pub fn wait(
        token: Token,
        limits: &Limits,
        door: &Arc<Door>,
        lobby: &Arc<Lobby>,
    ) -> Result<Self, String> {
        // The door is this link's business until it stands.
        let _watch = door.watch(lobby).map_err(|error| error.to_string())?;
        Self::new(Side::Waits { token, _watch }, limits, lobby)
    }

    /// Goes on without waiting; the connections once all stand.
    ///
    /// # Errors
    /// Why they never will.
    pub fn advance(
        &mut self,
        door: &Door,
        lobby: &Lobby,
        moved: &mut bool,
    ) -> Result<Option<Vec<Connected>>, String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        match &mut self.side {
            Side::Dials { way, dials } => {
                let mut at = 0;
                while let Some(dial) = dials.get_mut(at) {
                    if dial.step(way, &lobby.poller, moved)? {
                        let dial = dials.swap_remove(at);
                        let stripe = usize::from(dial.stripe());
                        if let Some(connection) = self.connections.get_mut(stripe) {
                            *connection = Some(dial.into_connected());
                        }
                    } else {
                        at += 1;
                    }
                }
            }
            Side::Waits { token, .. } => {
                *moved |= door.serve().map_err(|error| {
                    format!("cannot take the peer's connections: {error}; raise the limit on open files (`ulimit -n`)")
                })?;
                for arrived in lobby.take() {
                    *moved = true;
                    let right = arrived.token == *token
                        && usize::from(arrived.stripes) == self.connections.len();
                    let slot = self.connections.get_mut(usize::from(arrived.stripe));
                    // A second one for the same stripe is closed.
                    if let Some(slot @ None) = slot.filter(|_| right) {
                        *slot = Some((arrived.socket, Lobby::WATCHED));
                    }
                }
                // What waits for the others must not keep the descriptor readable.
                for (socket, watched) in self.connections.iter_mut().flatten() {
                    let nothing = EventFlags::empty();
                    if socket::watch(&lobby.poller, &*socket, *watched, nothing).is_ok() {
                        *watched = nothing;
                    }
                }
            }
        }
        if self.connections.iter().all(Option::is_some) {
            return self.stand().map(Some);
        }
        if Instant::now() < self.until {
            return Ok(None);
        }
        let limit = self.limit;
        Err(match &self.side {
            Side::Dials { way, .. } => format!("{} did not answer within {limit:?}", way.to),
            Side::Waits { .. } => {
                let note = lobby.note().map(|note| format!("; {note}")).unwrap_or_default();
                format!("the peer did not connect to {} within {limit:?}{note}", door.address)
            }
        })
    }

    fn stand(&mut self) -> Result<Vec<Connected>, String> {
        let connections: Vec<_> = self.connections.iter_mut().filter_map(Option::take).collect();
        for (socket, _) in &connections {
            socket::tune(socket, self.silence)
                .map_err(|error| format!("cannot set up a connection: {error}"))?;
        }
        Ok(connections)
    }
}
