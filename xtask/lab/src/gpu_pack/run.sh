#!/bin/sh
# Checks and measures Antiphon on this machine's GPUs. Needs their driver and a C library of glibc 2.35 or newer; one GPU is
# enough; tar and gzip unpack the programs. The benchmark and the built-in algorithms' own kernels need a run-time compiler (NVRTC, hipRTC), too: without it they are passed
# over, and built-in algorithms are interpreted. The plans' own kernels are in the folder for NVIDIA's GPUs, compiled ahead.
#
#   ./run.sh [--quick | --brief] [--rocm] [FOLDER]   writes what was said into FOLDER [default: log-DATE beside this file]
#
# --quick takes one plan and small sizes. --brief runs everything with fewer sizes and rounds, and several steps at a time, so that
# times mean something in the benchmark alone: for a card that is there for some minutes. --rocm is for AMD's GPUs, if the folder was
# packed for them, too. The exit status is 0 if no step has failed; FOLDER/summary.txt names them all. FOLDER/gpu-bench.md has the tables of the benchmark.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1

# The newest of HIP's libraries in a folder.
hip_in() {
    for name in libamdhip64.so.7 libamdhip64.so.6 libamdhip64.so.5 libamdhip64.so; do
        if [ -n "$1" ] && [ -e "$1/$name" ]; then
            echo "$1/$name"
            return 0
        fi
    done
    return 1
}

# The driver's library for AMD's GPUs, as LD_LIBRARY_PATH, the system's loader or ROCm's folders have it; nothing where none has.
find_hip() (
    IFS=:
    for folder in ${LD_LIBRARY_PATH-}; do
        hip_in "$folder" && return
    done
    for name in libamdhip64.so.7 libamdhip64.so.6 libamdhip64.so.5 libamdhip64.so; do
        if PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "[[:space:]]$name "; then
            echo "$name"
            return
        fi
    done
    for folder in "${ROCM_PATH:-/opt/rocm}" "${HIP_PATH:-/opt/rocm}" "${ROCM_HOME:-/opt/rocm}"; do
        hip_in "$folder/lib" && return
    done
)

quick=
brief=
device=cuda
driver=libcuda.so.1
while :; do
    case ${1-} in
    --quick) quick=1 ;;
    --brief) brief=1 ;;
    --rocm)
        device=rocm
        driver=${ANTIPHON_HIP_LIB:-$(find_hip)}
        # A file that is named is the only one that is tried.
        [ -z "$driver" ] || export ANTIPHON_HIP_LIB="$driver"
        ;;
    -*)
        echo "cannot take the option $1: allowed --quick, --brief, --rocm" >&2
        exit 2
        ;;
    *) break ;;
    esac
    shift
done
# The programs, which come packed.
bin=$here/bin
if [ ! -d "$bin" ]; then
    rm -rf "$bin.part"
    mkdir "$bin.part" && tar -xzf "$here/programs.tar.gz" -C "$bin.part" && mv "$bin.part" "$bin" || exit 1
fi
if [ $device = rocm ] && [ ! -e "$bin/hal_rocm" ]; then
    echo "cannot check AMD's GPUs: this folder was packed for NVIDIA's alone; pack with --rocm" >&2
    exit 2
fi
log=${1:-$here/log-$(date -u +%Y%m%dT%H%M%SZ)}
mkdir -p "$log" || exit 1
log=$(cd "$log" && pwd) || exit 1
summary=$log/summary.txt
: >"$summary"
export ANTIPHON_CACHE_DIR="$log/cache"
# As many of the card's queues as there are: with fewer than streams, kernels that wait for each other may stand in one.
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-32}"
# Seconds that a step may take: what hangs shall not keep the rest.
most=${ANTIPHON_STEP_SECONDS:-600}

note() {
    echo "$*" | tee -a "$summary"
}

# step NAME COMMAND...: runs a command, whose output goes to NAME.log, for so long at most.
step() {
    step=$1
    shift
    began=$(date +%s)
    timeout -k 10 "$most" "$@" >"$log/$step.log" 2>&1
    status=$?
    case $status in
    0)
        note "ok     $step, $(($(date +%s) - began)) s"
        # What a test has passed over, and why.
        sed -n 's/^.*SKIP \([a-z_]*::[a-z0-9_:]*: .*\)$/\1/p' "$log/$step.log" | while read -r passed; do
            note "SKIP   $step: $passed"
        done
        ;;
    124 | 137) note "FAILED $step: not done after $most s, see $log/$step.log" ;;
    *) note "FAILED $step: status $status, see $log/$step.log" ;;
    esac
}

# beside NAME COMMAND...: the same, with --brief beside others. `together` waits for them.
beside() {
    if [ -z "$brief" ]; then
        step "$@"
        return
    fi
    (step "$@") &
    running=$((running + 1))
    [ "$running" -lt 3 ] || together
}
together() {
    wait
    running=0
}
running=0

antiphon=$bin/antiphon

if [ -n "$quick" ]; then
    plans=$here/plans/allreduce_two_shot_packets_4.json
    sweep="-b 1K -e 4K -f 4 --iters 2 --warmup 1 --block-threads 32"
    worlds=2
    bench="--quick --block-threads 32"
else
    plans=$(ls "$here"/plans/*.json)
    sweep="-b 1K -e 64M -f 4 --iters 20 --warmup 5"
    worlds="2 4 8"
    bench=
fi
# Ranks that are processes of one GPU take turns on it, which takes milliseconds for each step of a plan.
slow=$sweep
if [ -n "$brief" ]; then
    sweep="-b 1K -e 16M -f 16 --iters 5 --warmup 2"
    slow="-b 1K -e 64K -f 64 --iters 2 --warmup 1"
    bench="--line-seconds 1"
fi

step info "$antiphon" info
if command -v nvidia-smi >/dev/null 2>&1; then
    step nvidia-smi nvidia-smi -q
    step nvidia-smi-topology nvidia-smi topo -m
else
    note "SKIP   nvidia-smi: there is none"
fi

# The conformance suite of the device layer, and what is promised of one vendor's alone.
[ -n "$quick" ] || step conformance env ANTIPHON_NEEDS_GPU=1 "$bin/hal_$device" gpu:: --test-threads=1
# These tests start themselves again on the simulated driver unless the variable is set: here it names the driver's own file,
# by which they call it as an application does.
[ -n "$driver" ] || note "SKIP   engine: no libamdhip64.so was found by its name; ANTIPHON_HIP_LIB names one"
# The last ones are of several devices, and say so where there are too few. Others of several devices are for the simulated driver
# alone, since no card can be told to behave so: direct, islands, prebuilt. The plans run below.
groups="graphs streams buffers ends first methods runtime_sizes scaled grouped faults ports together handed coded counted hosts
    reproducible rooted transfers defaults devices groups"
[ -z "$quick" ] || groups=reproducible
for group in ${driver:+$groups}; do
    # A name is looked for anywhere in those of tests: `faults::` is in `defaults::`, too.
    others=
    [ "$group" != faults ] || others="--skip defaults::"
    beside "engine-$group" env ANTIPHON_TEST_SIMULATED="$driver" ANTIPHON_TEST_BACKEND=$device "$bin/gpu_engine" "$group::" $others --test-threads=1
done

# Clients in C and C++, which call the driver themselves.
for client in "device threads" "device processes" "device together" "device coded" "device misuse" \
    "devices together" "devices processes" "coded"; do
    name=$(echo "client-$client" | tr ' ' '-')
    # The name and the way, which are two words.
    set -- $client
    if [ $device != cuda ]; then
        note "SKIP   $name: it calls CUDA's driver"
    elif [ ! -e "$bin/clients/$1" ]; then
        note "SKIP   $name: it was not packed, for want of nccl.h"
    elif [ -z "$quick" ] || [ "${2-}" != processes ]; then
        beside "$name" env ANTIPHON_DEVICE=cuda "$bin/clients/$@"
    fi
done

together

# Whether kernels can be generated here, which takes a compiler that no driver brings; and whether those run that were compiled ahead.
probe=$here/plans/allreduce_two_shot_packets_4.json
# generates NAME: whether the probe runs by kernels of its own; what it says goes to NAME.log.
generates() {
    timeout -k 10 "$most" "$antiphon" run "$probe" --device $device --threads --kernels generated --block-threads 32 --size 1K \
        --iters 1 --warmup 0 >"$log/$1.log" 2>&1 || ! grep -qE "run-time compiler|cannot load a kernel's module" "$log/$1.log"
}
forms="generated interpreted"
own=$forms
if ! generates compiler; then
    note "SKIP   benchmark, built-in algorithms by kernels of their own: there is no run-time compiler, see $log/compiler.log"
    forms=interpreted
fi
if [ -d "$here/code" ]; then
    export ANTIPHON_CODE_DIR="$here/code"
fi
if [ "$forms" = interpreted ] && ! generates ahead; then
    note "SKIP   plans by kernels of their own: there are none for this device, see $log/ahead.log"
    own=interpreted
fi

# Every plan by both kinds of kernels, results compared with the reference; ranks take turns on the GPUs there are.
for plan in $plans; do
    name=$(basename "$plan" .json)
    for form in $own; do
        beside "plan-$name-$form" "$antiphon" run "$plan" --device $device --threads --kernels "$form" $sweep
    done
done
together

# What it costs, beside what the card itself can do.
[ "$forms" = interpreted ] || step benchmark env ANTIPHON_CACHE_DIR="$log/cache-benchmark" "$bin/gpu-bench" --backend $device --out "$log" $bench
[ -e "$log/gpu-bench.md" ] && cat "$log/gpu-bench.md"

if [ -n "$quick" ]; then
    note "SKIP   compute-sanitizer: --quick"
elif [ $device != cuda ]; then
    note "SKIP   compute-sanitizer: it is for NVIDIA's GPUs"
elif command -v compute-sanitizer >/dev/null 2>&1; then
    # Slower by a factor of hundreds.
    limit=$most
    [ -n "$brief" ] || most=$((2 * most))
    for tool in memcheck racecheck; do
        step "sanitizer-$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$antiphon" run \
            "$here/plans/allreduce_two_shot_packets_4.json" --device cuda:0 --threads --size 16K --iters 2 --warmup 0 --timeout off
    done
    most=$limit
else
    note "SKIP   compute-sanitizer: there is none"
fi

# The plans once more, each rank a process.
for plan in $plans; do
    [ -n "$quick" ] && continue
    beside "plan-$(basename "$plan" .json)-processes" "$antiphon" run "$plan" --device $device --processes $slow
done

# The built-in algorithms with as many ranks as asked for, on however many GPUs there are.
for ranks in $worlds; do
    for collective in allreduce allgather reducescatter alltoall alltoallv; do
        for form in $forms; do
            [ -n "$quick" ] && [ "$collective" != allreduce ] && continue
            beside "bench-$collective-$ranks-$form" "$antiphon" bench "$collective" --ranks "$ranks" --device $device --threads \
                --kernels "$form" $sweep
        done
    done
done

together

rm -rf "$log/cache" "$log/cache-benchmark"
note "logs are in $log"
! grep -q ^FAILED "$summary"
