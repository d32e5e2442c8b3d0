//! What the kernel's files say of RDMA devices.

use super::gid::{GidEntry, GidKind};
use antiphon_transport::topology::{Place, Topology};
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The device, e.g. `mlx5_0`.
    pub device: String,
    /// The port's number, from 1 on.
    pub number: u8,
    /// It is up.
    pub active: bool,
    /// Its state in the kernel's words.
    pub state: String,
    /// It runs over Ethernet (RoCE).
    pub ethernet: bool,
    /// Where its device is.
    pub place: Place,
    /// Its addresses.
    pub gids: Vec<GidEntry>,
}

/// All ports of all devices of a machine; none where the kernel has no such folder.
///
/// # Errors
/// If the folder is there and cannot be read.
pub fn ports(topology: &Topology) -> io::Result<Vec<Port>> {
    let mut ports = Vec::new();
    for (device, folder) in children(&topology.root().join("class/infiniband"))? {
        let place = topology.rdma_place(&device);
        for (number, folder) in children(&folder.join("ports"))? {
            let Ok(number) = number.parse() else { continue };
            let state = read(&folder.join("state")).unwrap_or_default();
            ports.push(Port {
                device: device.clone(),
                number,
                active: state.ends_with("ACTIVE"),
                state,
                ethernet: read(&folder.join("link_layer")).as_deref() == Some("Ethernet"),
                place: place.clone(),
                gids: gids(&folder)?,
            });
        }
    }
    ports.sort_by(|a, b| (&a.device, a.number).cmp(&(&b.device, b.number)));
    Ok(ports)
}

fn children(folder: &Path) -> io::Result<Vec<(String, std::path::PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    Ok(entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect())
}

fn read(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

fn gids(port: &Path) -> io::Result<Vec<GidEntry>> {
    let mut gids = Vec::new();
    for (index, file) in children(&port.join("gids"))? {
        let (Ok(index), Some(gid)) = (index.parse::<u8>(), read(&file)) else { continue };
        let Ok(gid) = gid.parse::<Ipv6Addr>() else { continue };
        // Empty entries cannot be used, and reading their kind fails.
        if gid.is_unspecified() {
            continue;
        }
        let attribute =
            |name: &str| read(&port.join("gid_attrs").join(name).join(index.to_string()));
        let kind = match attribute("types").as_deref() {
            Some("RoCE v2") => GidKind::RoceV2,
            _ => GidKind::IbOrRoceV1,
        };
        let interface = attribute("ndevs").unwrap_or_default();
        gids.push(GidEntry { index, gid, kind, interface });
    }
    gids.sort_by_key(|entry| entry.index);
    Ok(gids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_ports_and_addresses_are_read() {
        let root = std::env::temp_dir().join(format!("antiphon-rdma-sysfs-{}", std::process::id()));
        for (file, text) in [
            ("rxe0/ports/1/state", "4: ACTIVE\n"),
            ("rxe0/ports/1/link_layer", "Ethernet\n"),
            ("rxe0/ports/1/gids/0", "fe80:0000:0000:0000:5036:60ff:fe69:629b\n"),
            ("rxe0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            ("rxe0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("rxe0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n"),
            ("rxe0/ports/1/gid_attrs/types/1", "RoCE v2\n"),
            ("rxe0/ports/1/gid_attrs/ndevs/1", "ve0\n"),
            ("mlx5_0/ports/2/state", "1: DOWN\n"),
            ("mlx5_0/ports/2/link_layer", "InfiniBand\n"),
            ("mlx5_0/ports/odd/state", "4: ACTIVE\n"),
        ] {
            let file = root.join("class/infiniband").join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(file, text).expect("a file");
        }
        let ports = ports(&Topology::at(&root));
        fs::remove_dir_all(&root).expect("removed");
        let ports = ports.expect("readable");
        assert_eq!(ports.len(), 2, "{ports:?}");
        let (mlx, rxe) = (&ports[0], &ports[1]);
        assert_eq!((mlx.device.as_str(), mlx.number, mlx.active), ("mlx5_0", 2, false));
        assert_eq!((mlx.place.node, mlx.ethernet), (None, false));
        assert_eq!((rxe.active, rxe.ethernet), (true, true));
        let gids: Vec<_> = rxe.gids.iter().map(|e| (e.index, e.kind, &*e.interface)).collect();
        assert_eq!(gids, [(0, GidKind::IbOrRoceV1, ""), (1, GidKind::RoceV2, "ve0")]);
        assert_eq!(rxe.gids[1].address().to_string(), "10.0.0.1");
    }

    #[test]
    fn a_machine_without_devices_has_no_ports() {
        assert_eq!(ports(&Topology::at(Path::new("/nonexistent"))).expect("no error"), []);
    }
}
