//! Going to the meeting place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::store::Store;
use super::{Found, Meeting, Result, pmi_wire};
use crate::sync::lock;
use crate::tcp::{self, Place, Secret, UniqueId};
use crate::{Bootstrap, unix};

/// How often a rank of this process has met others through a Store, by the job and the rank: each time by another key,
/// the same on all ranks.
static MEETINGS: Mutex<BTreeMap<(String, u32), u32>> = Mutex::new(BTreeMap::new());

impl Found {
    /// Joins the job; returns when all ranks are there. Call it once a process: see the [module](super).
    ///
    /// # Errors
    /// `Pmi`, `Store` and `SecretFile`; what forming the job reports.
    pub fn connect(&self) -> Result<Arc<dyn Bootstrap>> {
        let begun = Instant::now();
        match &self.rendezvous {
            Meeting::Unix { address } => self.meet_here(address.clone(), begun),
            Meeting::Tcp { place, secret } => {
                self.meet_across(place.clone(), secret.read()?, begun)
            }
            Meeting::Alone => self.meet_here(unix::Rendezvous::unique()?, begun),
            Meeting::Pmi { descriptor, one_host: true } => {
                let own = if self.rank == 0 { Some(unix::Rendezvous::unique()?) } else { None };
                let address = pmi_wire::share(*descriptor, own.as_deref(), self.timeout)?;
                self.meet_here(address, begun)
            }
            Meeting::Pmi { descriptor, one_host: false } => {
                let own = match self.rank {
                    0 => Some(UniqueId::create(self.interface.as_deref())?),
                    _ => None,
                };
                let text = own.as_ref().map(UniqueId::to_string);
                let shared = pmi_wire::share(*descriptor, text.as_deref(), self.timeout);
                let id: Result<UniqueId> = shared.and_then(|text| Ok(text.parse()?));
                if let (Err(_), Some(own)) = (&id, &own) {
                    own.retire();
                }
                // The id holds the secret that counts.
                self.meet_across(Place::Id(id?), Secret::random()?, begun)
            }
            Meeting::Store { host, port, job } => {
                let mut store = Store::open(host, *port, self.timeout)?;
                let key = self.next_key(host, *port, job);
                let id = self.id_by_store(&mut store, &key)?;
                // Of many ranks the Store shall not keep a connection each meanwhile.
                let store = (self.rank == 0).then_some(store);
                let met = self.meet_across(Place::Id(id), Secret::random()?, begun);
                if let Some(store) = store {
                    // The others have it, or will not come any more.
                    store.forget(&key);
                }
                met
            }
        }
    }

    /// The key of this rank's next meeting through a Store.
    fn next_key(&self, host: &str, port: u16, job: &str) -> String {
        let mut meetings = lock(&MEETINGS);
        let number = meetings.entry((format!("{host} {port} {job}"), self.rank)).or_default();
        let key = format!("{job}/{number}");
        *number += 1;
        key
    }

    /// Rank 0's id, by way of the Store.
    fn id_by_store(&self, store: &mut Store, key: &str) -> Result<UniqueId> {
        if self.rank != 0 {
            let mut silent = None;
            loop {
                // Of the causes the earlier one: it is why there was no time left.
                let text = store.read(key).map_err(|error| silent.take().unwrap_or(error))?;
                let id: UniqueId = text.parse().map_err(|error| store.strange(&error))?;
                silent = store.silent(id.address());
                if silent.is_none() {
                    return Ok(id);
                }
            }
        }
        let interface = self.interface.clone().or_else(|| store.interface());
        let id = UniqueId::create(interface.as_deref())?;
        store.publish(key, &id.to_string()).inspect_err(|_| id.retire())?;
        Ok(id)
    }

    fn meet_here(&self, address: String, begun: Instant) -> Result<Arc<dyn Bootstrap>> {
        let Found { rank, world, timeout, .. } = *self;
        Ok(unix::connect_since(&unix::Rendezvous { address, rank, world, timeout }, begun)?)
    }

    fn meet_across(
        &self,
        place: Place,
        secret: Secret,
        begun: Instant,
    ) -> Result<Arc<dyn Bootstrap>> {
        let mut rendezvous = tcp::Rendezvous::new(place, self.rank, self.world, secret);
        rendezvous.timeout = self.timeout;
        rendezvous.interface = self.interface.clone();
        rendezvous.listen_everywhere = self.listen_everywhere;
        Ok(tcp::connect_since(&rendezvous, begun)?)
    }
}
