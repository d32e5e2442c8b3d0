//! Made-up machines.

use super::nodes::cores;
use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A tree in a folder of its own, which goes with it.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, nodes: &[(u32, &str)]) -> Self {
        let root =
            std::env::temp_dir().join(format!("antiphon-topology-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let tree = Tree(root);
        fs::create_dir_all(&tree.0).unwrap();
        for (number, cores) in nodes {
            tree.file(&format!("devices/system/node/node{number}/cpulist"), cores);
        }
        tree
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// A PCI device by its folder below `devices`, on a memory node.
    fn pci(&self, folder: &str, node: &str) {
        self.file(&format!("devices/{folder}/numa_node"), node);
        let address = folder.rsplit('/').next().unwrap();
        self.link(&format!("bus/pci/devices/{address}"), &format!("../../../devices/{folder}"));
    }

    /// A network interface, or another kind of device, of a PCI device.
    fn of(&self, class: &str, name: &str, folder: &str) {
        fs::create_dir_all(self.0.join(format!("class/{class}/{name}"))).unwrap();
        let device = format!("../../../devices/{folder}");
        self.link(&format!("class/{class}/{name}/device"), &device);
    }

    fn read(&self) -> Topology {
        Topology::at(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const GPU: &str = "0000:3d:00.0";

/// Two sockets. On the first a switch (port 3a, its bridges 3c) with a GPU and a NIC, and another root port of the same
/// host bridge with a NIC; another host bridge with a NIC. On the second a NIC.
fn two_sockets(name: &str) -> Tree {
    let tree = Tree::new(name, &[(0, "0-3"), (1, "4-7")]);
    let switch = "pci0000:3a/0000:3a:00.0/0000:3b:00.0";
    for (folder, node, nic) in [
        (format!("{switch}/0000:3c:00.0/0000:3d:00.0"), "0", None),
        (format!("{switch}/0000:3c:01.0/0000:3e:00.0"), "0", Some("mlx5_0")),
        ("pci0000:3a/0000:3a:01.0/0000:4f:00.0".to_owned(), "0", Some("mlx5_1")),
        ("pci0000:5d/0000:5d:00.0/0000:5e:00.0".to_owned(), "0", Some("mlx5_2")),
        ("pci0000:ae/0000:ae:00.0/0000:af:00.0".to_owned(), "1", Some("mlx5_3")),
    ] {
        tree.pci(&folder, node);
        if let Some(nic) = nic {
            tree.of("infiniband", nic, &folder);
        }
    }
    tree
}

fn gpu() -> PciAddress {
    GPU.parse().unwrap()
}

fn nearest(topology: &Topology, from: &Viewpoint, of: &[&str]) -> (String, Distance) {
    let named = of.iter().map(|name| (*name, topology.rdma_place(name))).collect();
    let (kept, distance) = topology.nearest(from, named, |(_, place)| place);
    (kept.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" "), distance)
}

#[test]
fn distances_follow_the_buses_and_the_memory_nodes() {
    let tree = two_sockets("distances");
    let topology = tree.read();
    let own = topology.place(gpu());
    assert_eq!((own.pci(), own.node), (Some(gpu()), Some(0)));
    for (device, expected) in [
        ("mlx5_0", Distance::Bridge),
        ("mlx5_1", Distance::HostBridge),
        ("mlx5_2", Distance::Node),
        ("mlx5_3", Distance::Across),
        ("mlx5_4", Distance::Unknown),
    ] {
        let place = topology.rdma_place(device);
        assert_eq!(own.distance(&place), expected, "{device}");
        assert_eq!(place.distance(&own), expected, "{device}");
    }
    assert_eq!(own.distance(&own), Distance::Same);
}

#[test]
fn the_nearest_are_chosen_and_what_is_not_known_counts_as_one_node() {
    let tree = two_sockets("nearest");
    let topology = tree.read();
    let from = topology.viewpoint(Some(gpu()), |_| true);
    let all = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "none"];
    for (of, kept, distance) in [
        (&all[..], "mlx5_0", Distance::Bridge),
        (&all[1..], "mlx5_1", Distance::HostBridge),
        (&all[2..], "mlx5_2 none", Distance::Unknown),
        (&all[3..4], "mlx5_3", Distance::Across),
        (&[], "", Distance::Unknown),
    ] {
        assert_eq!(nearest(&topology, &from, of), (kept.to_owned(), distance), "{of:?}");
    }
    for (cores, kept) in [
        (0..4, "mlx5_0 mlx5_1 mlx5_2 none"),
        (5..6, "mlx5_3 none"),
        (0..8, "mlx5_0 mlx5_1 mlx5_2 mlx5_3 none"),
        (9..9, "mlx5_0 mlx5_1 mlx5_2 mlx5_3 none"),
    ] {
        let from = topology.viewpoint(None, |core| cores.contains(&core));
        assert_eq!(nearest(&topology, &from, &all).0, kept, "{cores:?}");
    }
}

#[test]
fn a_virtual_machine_has_one_node_and_devices_of_one_host_bridge() {
    let tree = Tree::new("vm", &[(0, "0-1")]);
    tree.pci("pci0000:00/0000:00:03.0", "-1");
    tree.pci("pci0000:00/0000:00:04.0", "-1");
    // A virtio interface is below its PCI device.
    tree.file("devices/pci0000:00/0000:00:04.0/virtio1/vendor", "0x1af4");
    tree.of("net", "eth0", "pci0000:00/0000:00:04.0/virtio1");
    let topology = tree.read();
    let place = topology.network_place("eth0");
    assert_eq!((place.node, place.link.clone()), (Some(0), None));
    assert_eq!(place.pci(), "0000:00:04.0".parse().ok());
    let gpu = topology.place("0000:00:03.0".parse().unwrap());
    assert_eq!(gpu.distance(&place), Distance::HostBridge);
    // Without a word about nodes.
    let tree = Tree::new("bare", &[]);
    tree.pci("pci0000:00/0000:00:03.0", "-1");
    tree.pci("pci0000:01/0000:01:03.0", "-1");
    let topology = tree.read();
    let [one, two] =
        ["0000:00:03.0", "0000:01:03.0"].map(|pci| topology.place(pci.parse().unwrap()));
    assert_eq!((one.node, one.distance(&two)), (None, Distance::Unknown));
    assert_eq!(topology.viewpoint(None, |_| true), Viewpoint::Nodes(Vec::new()));
}

#[test]
fn interfaces_stand_on_others_and_host_bridges_below_devices() {
    let tree = two_sockets("standing");
    tree.of("net", "eth1", "pci0000:ae/0000:ae:00.0/0000:af:00.0");
    for (name, below) in
        [("vlan7", &["eth1"][..]), ("bond0", &["eth1", "eth2"]), ("ring", &["ring"])]
    {
        for lower in below {
            tree.link(&format!("class/net/{name}/lower_{lower}"), &format!("../{lower}"));
        }
    }
    tree.file("class/infiniband/rxe0/parent", "vlan7");
    tree.file("class/infiniband/rxe1/parent", "../../..");
    // Below a controller of volumes, as they are on some machines.
    tree.pci("pci0000:ae/0000:ae:05.5/pci10000:00/10000:00:02.0/10000:01:00.0", "1");
    let topology = tree.read();
    let eth1 = topology.network_place("eth1");
    assert!(eth1.pci().is_some());
    assert_eq!(topology.network_place("vlan7"), eth1);
    assert_eq!(topology.rdma_place("rxe0"), eth1);
    for nowhere in ["bond0", "ring", "", "..", "eth1/device"] {
        assert_eq!(topology.network_place(nowhere), Place::default(), "{nowhere}");
    }
    assert_eq!(topology.rdma_place("rxe1"), Place::default());
    let volume = topology.place("10000:01:00.0".parse().unwrap());
    assert_eq!(volume.distance(&eth1), Distance::HostBridge);
}

#[test]
fn garbage_and_circles_are_no_places() {
    let tree = Tree::new("garbage", &[(0, "0"), (1, "x-,4-2,1"), (2, "")]);
    tree.pci("pci0000:00/0000:00:01.0", "seven");
    tree.file("devices/pci0000:00/0000:00:01.0/current_link_width", "wide");
    tree.file("devices/pci0000:00/0000:00:01.0/current_link_speed", "16.0 GT/s PCIe");
    tree.link("bus/pci/devices/0000:00:02.0", "0000:00:02.0");
    tree.link("bus/pci/devices/0000:00:03.0", "../nowhere");
    tree.file("devices/platform/0000:00:04.0/numa_node", "0");
    tree.link("bus/pci/devices/0000:00:04.0", "../../../devices/platform/0000:00:04.0");
    tree.file("devices/system/node/nodes/cpulist", "5");
    tree.file("class/net/eth0", "a file in the place of a folder");
    tree.file("class/infiniband/odd/ports/1/state", "4: ACTIVE");
    let topology = tree.read();
    let nodes: Vec<_> =
        topology.memory_nodes().iter().map(|node| (node.number, &*node.cores)).collect();
    assert_eq!(nodes, [(0, &[0][..]), (1, &[1]), (2, &[])]);
    let place = topology.place("0000:00:01.0".parse().unwrap());
    assert!(place.pci().is_some());
    assert_eq!((place.node, place.link), (None, None));
    for address in ["0000:00:02.0", "0000:00:03.0", "0000:00:04.0", "0000:00:05.0"] {
        assert_eq!(topology.place(address.parse().unwrap()), Place::default(), "{address}");
    }
    let [odd] = &topology.networks()[..] else { panic!("one network") };
    assert_eq!((odd.kind, odd.up, &odd.place), (NetworkKind::Rdma, true, &Place::default()));
    assert_eq!(Topology::at(Path::new("/nowhere")).networks(), []);
}

#[test]
fn networks_have_speeds_and_loopbacks_are_left_out() {
    let tree = two_sockets("networks");
    let folder = "pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0";
    tree.file(&format!("devices/{folder}/current_link_speed"), "16.0 GT/s PCIe");
    tree.file(&format!("devices/{folder}/current_link_width"), "8");
    tree.of("net", "eth0", folder);
    for (file, text) in [
        ("net/eth0/speed", "25000"),
        ("net/eth0/operstate", "up"),
        ("net/eth0/type", "1"),
        ("net/lo/type", "772"),
        ("net/bonding_masters", "bond0"),
        ("net/tun0/operstate", "unknown"),
        ("net/tun0/carrier", "1"),
        ("net/veth0/speed", "-1"),
        ("net/veth0/operstate", "unknown"),
        ("net/veth0/carrier", "0"),
        ("infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)"),
        ("infiniband/mlx5_0/ports/1/state", "1: DOWN"),
    ] {
        tree.file(&format!("class/{file}"), text);
    }
    let all = tree.read().networks();
    let names: Vec<_> = all.iter().map(|network| network.name.as_str()).collect();
    assert_eq!(names, ["eth0", "tun0", "veth0", "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]);
    assert_eq!((all[0].speed.as_deref(), all[0].up), (Some("25000 Mb/s"), true));
    let link = all[0].place.link.as_ref().map(ToString::to_string);
    assert_eq!(link.as_deref(), Some("16.0 GT/s PCIe x8"));
    assert_eq!((all[1].up, all[2].up), (true, false));
    assert_eq!((&all[2].speed, &all[2].place), (&None, &Place::default()));
    assert_eq!((all[3].speed.as_deref(), all[3].up), (Some("100 Gb/sec (4X EDR)"), false));
}

#[test]
fn lists_of_cores_are_read() {
    for (list, expected) in [
        ("0-3,8\n", &[0, 1, 2, 3, 8][..]),
        ("5", &[5]),
        ("", &[]),
        ("x,1-,2", &[2]),
        ("3-1", &[]),
        ("0-99999999999", &[]),
    ] {
        assert_eq!(cores(list), expected, "{list:?}");
    }
}
