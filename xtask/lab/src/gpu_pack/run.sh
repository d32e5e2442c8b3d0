#!/bin/sh
# Checks and measures Antiphon on this machine's GPUs. Needs their driver and a C library of glibc 2.35 or newer; one GPU is
# enough; tar and gzip unpack the programs. The benchmark and the built-in algorithms' own kernels need a run-time compiler (NVRTC, hipRTC), too: without it they are passed
# over, and built-in algorithms are interpreted. The plans' own kernels are in the folder for NVIDIA's GPUs, compiled ahead.
#
#   ./run.sh [--quick | --brief] [--rocm] [--only PARTS] [FOLDER]   writes what was said into FOLDER [default: log-DATE beside this file]
#
# --quick takes one plan and small sizes. --brief runs everything with fewer sizes and rounds, and several steps at a time, so that
# times mean something in the benchmark and in `tune` alone: for a card that is there for some minutes. --rocm is for AMD's GPUs, if the folder was
# packed for them, too. --only takes some of the parts, with commas between them, which run in this order:
#   info benchmark clients engine python ahead plans bench conformance copies tune shared processes sanitizer
#
# FOLDER gets few files: summary.txt, which names every step and what became of it; all.log, what each of them said; the tables of the
# benchmark (gpu-bench.md and .json; in copies, those of its longest part), and of what calls cost on this machine's processors (tuning.json). Both texts grow
# step by step, so that what is cut off has told what it had. The exit status is 0 if all steps have run, and none has failed.
#
# ANTIPHON_STEP_SECONDS: the most seconds of a step [default: 600, with --brief 60]; the benchmark may take thrice as long.
# ANTIPHON_DEADLINE: the most seconds of all; steps that come too late for it do not run.
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
only=
parts="info benchmark clients engine python ahead plans bench conformance copies tune shared processes sanitizer"
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
    --only)
        only=$(echo "${2-}" | tr , ' ')
        for part in ${only:-nothing}; do
            case " $parts " in
            *" $part "*) ;;
            *)
                echo "cannot run a part: saw $part, allowed $parts" >&2
                exit 2
                ;;
            esac
        done
        shift
        ;;
    -*)
        echo "cannot take the option $1: allowed --quick, --brief, --rocm, --only" >&2
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
all=$log/all.log
: >"$summary"
: >"$all"
# What nobody wants afterwards: the steps' own logs, which are of all.log, and compiled kernels.
kept=$(mktemp -d) || exit 1
trap 'rm -rf "$kept"' EXIT
export ANTIPHON_CACHE_DIR="$kept/cache"
# As many of the card's queues as there are: with fewer than streams, kernels that wait for each other may stand in one.
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-32}"
# NCCL's interface has no limit of its own.
export ANTIPHON_TIMEOUT="${ANTIPHON_TIMEOUT:-30s}"
# Seconds that a step may take: what hangs shall not keep the rest.
most=${ANTIPHON_STEP_SECONDS:-600}
[ -z "$brief" ] || most=${ANTIPHON_STEP_SECONDS:-60}
started=$(date +%s)

note() {
    echo "$*" | tee -a "$summary"
}

# What is running is ended, too: it is in groups of processes of its own.
cut_off() {
    trap '' TERM INT
    for running in "$kept"/running-*; do
        [ ! -e "$running" ] || kill "$(cat "$running")" 2>/dev/null
    done
    # What they had said so far is kept.
    wait
    note "CUT OFF after $(($(date +%s) - started)) s"
    exit 143
}
trap cut_off TERM INT

# seconds WANTED: so many, or as many as there are.
seconds() {
    if [ -n "${ANTIPHON_DEADLINE-}" ]; then
        rest=$((started + ANTIPHON_DEADLINE - $(date +%s)))
        [ "$rest" -gt "$1" ] || { echo "$rest" && return; }
    fi
    echo "$1"
}

# step NAME COMMAND...: runs a command, whose output goes to all.log, for so long at most.
step() {
    step=$1
    shift
    limit=$(seconds "$most")
    if [ "$limit" -lt 5 ]; then
        note "NOT RUN $step: the time is over"
        return
    fi
    began=$(date +%s)
    timeout -k 5 "$limit" "$@" >"$kept/$step.log" 2>&1 </dev/null &
    echo $! >"$kept/running-$step"
    wait $!
    status=$?
    rm -f "$kept/running-$step"
    took=$(($(date +%s) - began))
    { echo "==> $step: status $status, $took s" && cat "$kept/$step.log"; } >>"$all"
    # What a test has passed over, and why.
    sed -n 's/^.*SKIP \([a-z_]*::[a-z0-9_:]*: .*\)$/\1/p' "$kept/$step.log" | while read -r passed; do
        note "SKIP   $step: $passed"
    done
    # Tests are chosen by names, which may be no test's any more.
    [ $status != 0 ] || ! grep -q '^running 0 tests$' "$kept/$step.log" || status=empty
    case $status in
    0) note "ok     $step, $took s" ;;
    empty) note "FAILED $step: no test has its names" ;;
    124 | 137) note "FAILED $step: not done after $limit s" ;;
    *) note "FAILED $step: status $status" ;;
    esac
    # Where the end is likely to be worth reading at once.
    [ $status = 0 ] || tail -n 15 "$kept/$step.log" | sed 's/^/    /'
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

# part NAME: whether it is to run. --quick leaves out what has no quick form.
part() {
    together
    case " ${only:-$parts} " in *" $1 "*) ;; *) return 1 ;; esac
    case "$quick $1" in "1 conformance" | "1 python" | "1 copies" | "1 tune" | "1 shared" | "1 processes" | "1 sanitizer") return 1 ;; esac
}

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
brisk=
# Ranks that are processes of one GPU take turns on it, which takes milliseconds for each step of a plan.
slow=$sweep
if [ -n "$brief" ]; then
    sweep="-b 1K -e 16M -f 16 --iters 5 --warmup 2"
    slow="-b 1K -e 64K -f 64 --iters 2 --warmup 1"
    bench="--line-seconds 1"
    brisk="--time 100ms --moments 2"
fi

# Whether kernels can be generated here, which takes a compiler that no driver brings; and whether those run that were compiled ahead.
probe=$here/plans/allreduce_two_shot_packets_4.json
# generates NAME: whether the probe runs by kernels of its own.
generates() {
    name=$1
    limit=$(seconds "$most")
    [ "$limit" -ge 5 ] || return
    timeout -k 5 "$limit" "$antiphon" run "$probe" --device $device --threads --kernels generated --block-threads 32 --size 1K \
        --iters 1 --warmup 0 >"$kept/$name.log" 2>&1 </dev/null
    status=$?
    { echo "==> $name: status $status" && cat "$kept/$name.log"; } >>"$all"
    # What else fails is told where it is run for its own sake.
    [ $status = 0 ] || ! grep -qE "run-time compiler|cannot load a kernel's module" "$kept/$name.log"
}
forms="generated interpreted"
own=$forms
if ! generates compiler; then
    note "SKIP   benchmark, built-in algorithms by kernels of their own: there is no run-time compiler"
    forms=interpreted
fi
# What was compiled ahead is taken first, so that nothing would be compiled where it is named.
if [ "$forms" = interpreted ]; then
    export ANTIPHON_CODE_DIR="$here/code"
    if ! generates ahead; then
        note "SKIP   plans by kernels of their own: there are none for this device"
        own=interpreted
    fi
fi

# measured FOLDER: the tables there, and what they lack.
measured() {
    [ -e "$1/gpu-bench.md" ] || return
    cat "$1/gpu-bench.md"
    for lack in "not measured" missed; do
        note "       $(grep -o "$lack" "$1/gpu-bench.md" | wc -l) times \"$lack\" in ${1#"$log"/}/gpu-bench.md"
    done
}
# benchmark NAME FOLDER ARGUMENTS...: one that nothing else is beside.
benchmark() {
    name=$1
    folder=$2
    shift 2
    [ "$forms" = interpreted ] && return
    ! command -v nvidia-smi >/dev/null 2>&1 || nvidia-smi --query-compute-apps=pid,name --format=csv >>"$all" 2>&1
    limit=$most
    most=$((3 * most))
    step "$name" env ANTIPHON_CACHE_DIR="$kept/cache-benchmark" "$bin/gpu-bench" --backend $device --out "$folder" $bench "$@"
    most=$limit
    measured "$folder"
}

if part info; then
    step info "$antiphon" info
    if command -v nvidia-smi >/dev/null 2>&1; then
        step nvidia-smi nvidia-smi -q
        step nvidia-smi-topology nvidia-smi topo -m
    else
        note "SKIP   nvidia-smi: there is none"
    fi
fi

# What it costs, beside what the card itself can do.
if part benchmark; then
    if [ -n "$quick" ]; then
        benchmark benchmark "$log"
    else
        benchmark benchmark "$log" --only launches,forms,host,graphs,compile
    fi
fi

# Clients in C and C++, which call the driver themselves.
if part clients; then
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
fi

# These tests start themselves again on the simulated driver unless the variable is set: here it names the driver's own file,
# by which they call it as an application does.
[ -n "$driver" ] || note "SKIP   engine: no libamdhip64.so was found by its name; ANTIPHON_HIP_LIB names one"
# engine NAME TESTS...: these tests of the engine.
engine() {
    name=$1
    shift
    # Without names, it would be all tests.
    if [ $# = 0 ]; then
        note "FAILED engine-$name: no tests are named"
        return
    fi
    beside "engine-$name" env ANTIPHON_TEST_SIMULATED="$driver" ANTIPHON_TEST_BACKEND=$device ANTIPHON_TEST_PLANS="$here/shared" \
        "$bin/gpu_engine" --exact "$@" --test-threads=1
}
# What is not of this part: `plans` is `shared`, and the others are for the simulated driver alone, since no card can be told to behave so.
elsewhere="plans direct islands prebuilt"
if part engine && [ -n "$driver" ]; then
    tests=$("$bin/gpu_engine" --list | sed -n 's/: test$//p')
    groups=$(echo "$tests" | sed 's/::.*//' | sort -u)
    [ -z "$quick" ] || groups=reproducible
    if [ -z "$tests" ]; then
        note "FAILED engine: its tests cannot be listed"
        groups=
    fi
    for group in $groups; do
        case " $elsewhere " in *" $group "*) continue ;; esac
        # Names, which have no blanks.
        engine "$group" $(echo "$tests" | grep "^$group::")
    done
fi

# The Python package with what the machine's Python has.
if part python; then
    site=$kept/site
    if [ ! -d "$here/python" ]; then
        note "SKIP   python: the package was not packed"
    elif ! python3 -m pip install -q --no-index --no-deps --target "$site" "$here"/python/*.whl >>"$all" 2>&1; then
        note "FAILED python: its package cannot be installed"
    else
        for library in torch cupy; do
            if python3 -c "import $library; $library.cuda.is_available() or exit(1)" >>"$all" 2>&1; then
                start="python3"
                [ $library != torch ] || start="python3 -m torch.distributed.run --nproc_per_node 2"
                beside "python-$library" env PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}" $start "$here/python/${library}_card.py"
            else
                note "SKIP   python-$library: there is none that has GPUs"
            fi
        done
    fi
fi

# What was compiled ahead, and nothing else: a compiler would make what the driver does not take.
if part ahead && [ -d "$here/code" ] && [ "$own" != interpreted ]; then
    beside ahead env ANTIPHON_CODE_DIR="$here/code" ANTIPHON_NVRTC_LIB=/nowhere "$antiphon" run "$probe" --device $device --threads --kernels generated $sweep
fi

# Every plan by both kinds of kernels, results compared with the reference; ranks take turns on the GPUs there are.
if part plans; then
    for plan in $plans; do
        name=$(basename "$plan" .json)
        for form in $own; do
            beside "plan-$name-$form" "$antiphon" run "$plan" --device $device --threads --kernels "$form" $sweep
        done
    done
fi

# The built-in algorithms with as many ranks as asked for, on however many GPUs there are.
if part bench; then
    for ranks in $worlds; do
        for collective in allreduce allgather reducescatter alltoall alltoallv; do
            for form in $forms; do
                [ -n "$quick" ] && [ "$collective" != allreduce ] && continue
                beside "bench-$collective-$ranks-$form" "$antiphon" bench "$collective" --ranks "$ranks" --device $device --threads \
                    --kernels "$form" $sweep
            done
        done
    done
fi

# The conformance suite of the device layer, and what is promised of one vendor's alone.
if part conformance; then
    beside conformance env ANTIPHON_NEEDS_GPU=1 "$bin/hal_$device" gpu:: --test-threads=1
    # Each in a process of its own, as on the simulated driver.
    for test in ${driver:+streams_of_green_contexts_are_the_devices a_device_is_not_opened_on_a_green_context}; do
        [ $device != cuda ] || beside "green-$test" env ANTIPHON_TEST_SIMULATED="$driver" "$bin/hal_cuda" --exact "green::$test"
    done
fi

if part copies; then
    benchmark benchmark-copies "$log/copies" --only copies
fi

# What calls cost on this machine's own processors, for `cargo xtask defaults --from`: alone, and where each rank has one.
if part tune; then
    cores=$(nproc)
    for call in "4 1 64M" "8 1 1M" "8 2 1M"; do
        set -- $call
        if [ "$cores" -lt $((2 * $1)) ]; then
            note "SKIP   tune-$1-ranks-$2-nodes: it needs $((2 * $1)) processors, and there are $cores"
            continue
        fi
        step "tune-$1-ranks-$2-nodes" "$antiphon" tune --ranks "$1" --nodes "$2" -e "$3" -o "$log/tuning.json" $brisk
    done
fi

# Plans of others, where they were packed: as kernels of their own, and interpreted.
if part shared; then
    if [ ! -d "$here/shared" ]; then
        note "SKIP   shared: no plans of others were packed"
    elif [ -n "$driver" ]; then
        engine shared-interpreted plans::every_right_plan_gives_the_right_result_when_it_is_interpreted
        engine shared-generated plans::every_right_plan_gives_the_right_result_on_threads
        engine shared-ports plans::every_right_plan_with_ports_gives_the_right_result_on_threads
    fi
fi

# The plans once more, each rank a process.
if part processes; then
    for plan in $plans; do
        beside "plan-$(basename "$plan" .json)-processes" "$antiphon" run "$plan" --device $device --processes $slow
    done
fi

if part sanitizer; then
    sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
    if [ $device != cuda ]; then
        note "SKIP   compute-sanitizer: it is for NVIDIA's GPUs"
    elif [ -n "$sanitizer" ]; then
        # Slower by a factor of hundreds.
        limit=$most
        [ -n "$brief" ] || most=$((2 * most))
        # All ranks are one kernel: the tool may run kernels one after the other, of which none could wait for the next.
        for tool in memcheck racecheck; do
            step "sanitizer-$tool" env ANTIPHON_DEVICE=cuda "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/clients/device" together
        done
        most=$limit
    else
        note "SKIP   compute-sanitizer: there is none"
    fi
fi

together
note "logs are in $log"
! grep -qE '^(FAILED|NOT RUN)' "$summary"
