//! Whole jobs over RDMA: the command's ranks in a virtual machine that stands for two hosts.
//!
//! With one device, with two devices and a virtual cable, and what becomes of a job whose rank is killed or whose cable
//! is cut. That bytes went by RDMA is read from the devices' counters. Skipped, with the reason, where the wire's own
//! tests are (`rdma_vm`).

use antiphon::plan::algorithms::{Algorithm, Shape};
use antiphon::plan::model::Plan;
use antiphon_tests::harness::entries;
use antiphon_tests::harness::plans::json;
use antiphon_tests::vm::{Host, Image, Missing, Run, check, rdma_plugin};
use std::path::Path;

const PROGRAM: &str = env!("CARGO_BIN_EXE_antiphon");
/// Where the guest has [`FUNCTIONS`].
const FUNCTIONS_FILE: &str = "/lib/functions.sh";

/// What commands in the guest begin with.
const FUNCTIONS: &str = r#"
set -o pipefail
# Packets that a device has sent, and bytes that an end of the cable has.
packets() { cat /sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts; }
bytes() { cat /sys/class/net/$1/statistics/tx_bytes; }
# grew WHAT BEFORE AFTER LEAST
grew() {
  echo "$1 sent $(($3 - $2)) more"
  [ $(($3 - $2)) -ge $4 ] || { echo "expected at least $4"; return 1; }
}
# Starts two hosts of two ranks. Each host has a device, and the devices a cable. All else goes another way.
start() {
  for rank in 0 1 2 3; do
    host=$((rank / 2))
    ANTIPHON_RANK=$rank ANTIPHON_WORLD=4 ANTIPHON_COMM_ID=127.0.0.1:29500 ANTIPHON_HOSTID="host $host" \
      ANTIPHON_SECRET="a secret of the tests" ANTIPHON_HCA=rxe$host ANTIPHON_GID_INDEX=0 \
      antiphon "$@" > /tmp/rank$rank 2>&1 &
    eval pid$rank=$!
  done
}
# Waits for the ranks, and tells what each said.
finish() {
  for rank in 0 1 2 3; do
    eval wait \$pid$rank
    echo "rank $rank ended with $?:"
    cat /tmp/rank$rank
  done
}
# Waits until the first device has sent so many packets more, which ranks that only meet do not.
under_way() {
  before=$(packets rxe0)
  until [ $(($(packets rxe0) - before)) -gt $1 ]; do
    kill -0 $pid0 $pid1 $pid2 $pid3 || return 1
    sleep 0.1
  done
}
# Joins the cable again, and waits for both devices and their addresses.
mend() {
  /bin/ip link set ve1 up
  until [ $(rdma link | grep -c 'state ACTIVE') = 2 ] && [ -z "$(/bin/ip -6 address show tentative)" ]; do
    sleep 0.2
  done
}
# all_say LIMIT WORDS RANK...: these ranks fail, each with one of the words, before the limit is over.
all_say() {
  from=$(cut -d . -f 1 /proc/uptime) limit=$1 words=$2
  shift 2
  for rank; do
    eval wait \$pid$rank && { echo "rank $rank ended well"; return 1; }
    echo "rank $rank ended with $?:"
    cat /tmp/rank$rank
    grep -qE "$words" /tmp/rank$rank || { echo "rank $rank does not say $words"; return 1; }
  done
  took=$(($(cut -d . -f 1 /proc/uptime) - from))
  echo "all ended within $took s"
  [ $took -le $limit ]
}
"#;

/// What [`FUNCTIONS`] writes of a job that ends well.
const WELL: [&str; 5] = [
    "rank 0 ended with 0",
    "rank 1 ended with 0",
    "rank 2 ended with 0",
    "rank 3 ended with 0",
    "# wrong elements: 0 OK",
];

fn command(name: &str, script: &str) -> Run {
    Run::new(name, &format!(". {FUNCTIONS_FILE}\n{script}"))
}

/// The command by itself, its ranks being on two hosts with the same devices: those that must send some packets, and then
/// at least so many.
fn by_itself(arguments: &str, packets: [u64; 2]) -> Run {
    let used = ["rxe0", "rxe1"].into_iter().zip(packets).filter(|&(_, packets)| packets > 0);
    let devices: Vec<&str> = used.clone().map(|(device, _)| device).collect();
    let devices = devices.join(",");
    let before: String = used.clone().map(|(it, _)| format!("{it}=$(packets {it})\n")).collect();
    let grew = used.map(|(it, least)| format!("grew {it} ${it} $(packets {it}) {least} || exit\n"));
    let script = format!(
        "export ANTIPHON_HCA={devices} ANTIPHON_RDMA_LANES=2\n{before}\
         antiphon {arguments} --nodes 2 --wire rdma --iters 2 --warmup 1 2>&1 | cat || exit\n{}",
        grew.collect::<String>()
    );
    let name = format!("{arguments}, {devices}");
    command(&name, &script).saying(["wire rdma", "# wrong elements: 0 OK"])
}

/// Ranks that a launcher started, on two hosts with a device each. The cable must carry so many bytes in each direction.
fn over_the_cable(arguments: &str, bytes: u64) -> Run {
    let script = format!(
        "there=$(bytes ve0) back=$(bytes ve1)\n\
         start {arguments} --wire rdma --iters 2 --warmup 1\nfinish\n\
         grew ve0 $there $(bytes ve0) {bytes} && grew ve1 $back $(bytes ve1) {bytes}"
    );
    let name = format!("{arguments}, over the cable");
    command(&name, &script).saying(WELL).saying(["# wire rdma: rank 0 to 2"])
}

/// Launches of [`by_itself`] and [`over_the_cable`]: four are checked.
const LAUNCHES: u64 = 7;
/// Bytes of a packet where the cable takes 1500.
const PACKET: u64 = 1024;

fn runs(plans: &[Planned]) -> Vec<Run> {
    // From packets to zero copy; allreduce has two kinds of packets. In a launch of the largest size all ranks together
    // send the other host so many times it.
    const COLLECTIVES: [(&str, u64, u64); 4] = [
        ("allreduce", 32, 2),
        ("allgather", 1024, 1),
        ("reducescatter", 1024, 1),
        ("alltoall", 1024, 2),
    ];
    let built_in = COLLECTIVES.map(|(collective, factor, times)| {
        let arguments = format!("bench {collective} --ranks 4 -b 1K -e 1M -f {factor}");
        by_itself(&arguments, [LAUNCHES * times * (1 << 20) / PACKET, 0])
    });
    let planned = plans.iter().map(|plan| {
        let arguments = format!("run {} -b 4K -e 256K -f 64", plan.file());
        by_itself(&arguments, [LAUNCHES * (256 << 10) / PACKET, 0])
    });
    // What is large goes over both in equal parts.
    let two_devices = by_itself("bench allreduce --ranks 4 --size 1M", [LAUNCHES << 10; 2]);
    let cabled = over_the_cable("bench allreduce -b 4K -e 1M -f 256", LAUNCHES << 20);
    let jobs = built_in.into_iter().chain(planned).chain([two_devices, cabled]);
    jobs.chain(faults()).collect()
}

/// What becomes of jobs that would go on for ever, and of the next one.
fn faults() -> [Run; 4] {
    let fault = |name, script: &str| {
        let job = "start bench allreduce --size 64K --iters 10000000 --timeout 60s --wire rdma";
        command(name, &format!("{job}\nunder_way 4000 || {{ finish; exit 1; }}\n{script}"))
    };
    let cut = "/bin/ip link set ve1 down; all_say 30 'to rank [0-3]: lost the rdma link' 0 1 2 3";
    [
        fault("a rank is killed", "kill -KILL $pid3; all_say 30 'rank 3 .* is lost' 0 1 2"),
        fault("the cable is cut", cut),
        command("the cable is mended", "mend"),
        over_the_cable("bench allgather --size 4K", LAUNCHES << 11),
    ]
}

/// A plan in the guest.
struct Planned {
    name: String,
    plan: Plan,
}

impl Planned {
    fn file(&self) -> String {
        format!("/plans/{}", self.name)
    }
}

/// Several thread blocks, whose channels share a link; and, where it is, a plan of another implementation.
fn plans() -> Vec<Planned> {
    let shape = Shape { nodes: 2, blocks: 2, ..Shape::new(4) };
    let plan = Algorithm::AllReduceHierarchicalZeroCopy.plan(shape).expect("a plan");
    let foreign =
        entries().into_iter().filter(|entry| entry.name == "multi_node.allgather-ge2.json");
    let mut plans = vec![Planned { name: "two_blocks.json".to_owned(), plan }];
    plans.extend(foreign.map(|entry| Planned { name: entry.name, plan: entry.plan }));
    plans
}

#[test]
fn collectives_are_right_between_devices_of_a_virtual_machine() {
    let plans = plans();
    check("rdma_collectives", |host| image(host, &plans), &runs(&plans));
}

fn image(host: &Host, plans: &[Planned]) -> Result<Image, Missing> {
    let mut image = Image::new(host)?;
    image.program(Path::new(PROGRAM), "/bin/antiphon")?;
    // Where the command finds it by itself.
    let plugin = rdma_plugin(Path::new(PROGRAM))?;
    image.program(&plugin, "/bin/antiphon-wires/libantiphon_wire_rdma.so")?;
    image.file(Path::new(FUNCTIONS_FILE), FUNCTIONS.as_bytes());
    for planned in plans {
        image.file(Path::new(&planned.file()), &json(&planned.plan));
    }
    Ok(image)
}
