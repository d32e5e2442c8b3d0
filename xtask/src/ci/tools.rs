//! The tools that steps need and some machines lack: how to see whether they are there, and how to get them.

/// A tool that some machines lack. Its command lines are [filled](super::filled) when they are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tool {
    pub name: &'static str,
    /// Whether every machine can install it from the package registries, so that lacking it is a failure.
    pub installable: bool,
    /// Debian's packages that it is in, or takes.
    pub packages: &'static [&'static str],
    /// Installs what no package has; succeeds where it is there already.
    pub install: &'static [&'static str],
    /// Succeeds where it is there.
    pub probe: &'static [&'static str],
}

pub(super) const NIGHTLY: Tool = Tool {
    name: "a nightly toolchain",
    installable: false,
    packages: &[],
    install: &["rustup", "toolchain", "install", "nightly", "--profile", "minimal"],
    probe: &["cargo", "+nightly", "--version"],
};

/// The oldest Rust that the manifests say builds this.
pub(super) const OLDEST: Tool = Tool {
    name: "the oldest toolchain",
    installable: false,
    packages: &[],
    install: &["rustup", "toolchain", "install", "{oldest}", "--profile", "minimal"],
    probe: &["cargo", "+{oldest}", "--version"],
};

pub(super) const MIRI: Tool = Tool {
    name: "Miri",
    installable: false,
    packages: &[],
    install: &["rustup", "component", "add", "miri", "rust-src", "--toolchain", "nightly"],
    probe: &["cargo", "+nightly", "miri", "--version"],
};

/// What makes a Python of its own.
pub(super) const VENV: Tool = Tool {
    name: "venv",
    installable: true,
    packages: &["python3-venv"],
    install: &[],
    probe: &["python3", "-c", "import ensurepip"],
};

/// A Python of its own, with what the package needs to be built and tested.
pub(super) const PYTHON: Tool = Tool {
    name: "Python 3.10 or later with maturin, mpi4py, mypy, NumPy and pytest",
    installable: true,
    packages: &[],
    install: &[
        "sh",
        "-ec",
        "python3 -m venv --clear {venv}
         {venv}/bin/pip install -q 'maturin>=1.9,<2' mpi4py mpich 'mypy==2.4.1' numpy 'pytest>=8'",
    ],
    probe: &[
        "{venv}/bin/python",
        "-c",
        "import sys, maturin, mpi4py, mypy, numpy, pytest; assert sys.version_info >= (3, 10)",
    ],
};

/// A browser without a window, for the pages of plans. With the packages that its package recommends: fonts.
pub(super) const BROWSER: Tool = Tool {
    name: "Chromium",
    installable: true,
    packages: &[],
    install: &["sh", "-ec", "(apt-get update -qq && apt-get install -y -qq chromium) >&2"],
    probe: &["chromium", "--version"],
};

/// The verbs library with what building against it needs.
pub(super) const VERBS: Tool = Tool {
    name: "libibverbs with headers",
    installable: true,
    packages: &["libibverbs-dev", "librdmacm-dev", "libclang-dev", "pkg-config"],
    install: &[],
    probe: &[
        "sh",
        "-ec",
        "pkg-config --exists libibverbs librdmacm; ls /usr/lib/llvm-*/lib/libclang*.so*",
    ],
};

/// The declarations, the library and the run-time compiler of HIP.
pub(super) const HIP: Tool = Tool {
    name: "HIP with headers",
    installable: true,
    packages: &["libamdhip64-dev"],
    install: &[],
    probe: &[
        "sh",
        "-ec",
        "ls /usr/include/hip/hip_runtime_api.h || ls /opt/rocm/include/hip/hip_runtime_api.h",
    ],
};

/// A virtual machine with an RDMA device: the emulator, what goes into it, and an unpacked kernel.
pub(super) const MACHINE: Tool = Tool {
    name: "QEMU and a kernel with RDMA",
    installable: true,
    packages: &["qemu-system-x86", "busybox-static", "iproute2", "ibverbs-providers", "xz-utils"],
    install: &[
        "sh",
        "-ec",
        "(rm -rf {target}/vm && mkdir -p {target}/vm && cd {target}/vm
          apt-get download -qq $(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
          dpkg -x linux-image-*.deb . && rm linux-image-*.deb) >&2",
    ],
    probe: &[
        "sh",
        "-ec",
        "qemu-system-x86_64 --version; rdma -Version || rdma -V; busybox true; ls {target}/vm/boot/vmlinuz-* \
         /etc/libibverbs.d/rxe.driver",
    ],
};

/// Networks of namespaces, as hosts of their own.
pub(super) const IP: Tool = Tool {
    name: "ip",
    installable: true,
    packages: &["iproute2"],
    install: &[],
    probe: &["ip", "-Version"],
};

/// A launcher with a Store. Of the distribution: that of the registry brings gigabytes for devices.
pub(super) const TORCHRUN: Tool = Tool {
    name: "torchrun",
    installable: true,
    packages: &["python3-torch"],
    install: &[],
    probe: &["torchrun", "--help"],
};

/// A current PyTorch, from PyPI: built for CUDA, of whose gigabytes stand-ins take the place, since its CPU half is what is tested. It is
/// half a gigabyte itself, and not fetched where `ANTIPHON_CI_TORCH` is 0.
pub(super) const TORCH: Tool = Tool {
    name: "PyTorch 2.15",
    installable: false,
    packages: &[],
    install: &[
        "sh",
        "-ec",
        r#"test "$ANTIPHON_CI_TORCH" != 0 || { echo "ANTIPHON_CI_TORCH=0 says not to fetch it" >&2; exit 1; }
           python3 -m venv --clear {torch}
           {torch}/bin/pip install -q --no-deps torch==2.15.0
           {torch}/bin/pip install -q expecttest filelock fsspec jinja2 networkx numpy setuptools sympy typing_extensions
           {torch}/bin/python ffi/python/tests/cuda_standins.py {torch}/cuda
           printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' {torch}/cuda {torch}/bin/python > {torch}/python
           chmod +x {torch}/python"#,
    ],
    probe: &[
        "{torch}/python",
        "-c",
        "import expecttest, numpy, torch.distributed; assert torch.__version__.startswith('2.15')",
    ],
};

/// The C++ compiler that the simulated driver for GPUs makes kernels with, and that the fuzzer is built by.
pub(super) const CXX: Tool = Tool {
    name: "g++",
    installable: true,
    packages: &["g++"],
    install: &[],
    probe: &["g++", "--version"],
};

/// CUDA's run-time compiler, which needs no GPU. In a Python of its own, where the backend looks for it as in a user's.
pub(super) const NVRTC: Tool = Tool {
    name: "NVRTC",
    installable: true,
    packages: &[],
    install: &[
        "sh",
        "-ec",
        "python3 -m venv --clear {nvrtc}
         {nvrtc}/bin/pip install -q 'nvidia-cuda-nvrtc-cu12==12.9.86'",
    ],
    probe: &[
        "sh",
        "-ec",
        "ls {nvrtc}/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    ],
};

/// NVIDIA's header of NCCL and its bindings for Python, beside [`NVRTC`].
pub(super) const NCCL_HEADER: Tool = Tool {
    name: "NCCL's header, its bindings for Python, and g++",
    installable: true,
    packages: &[],
    install: &[
        "sh",
        "-ec",
        "test -x {nvrtc}/bin/pip || python3 -m venv {nvrtc}
         {nvrtc}/bin/pip install -q --no-deps 'nvidia-nccl-cu12==2.32.3' 'nccl4py==0.6.0' cuda-pathfinder numpy",
    ],
    probe: &[
        "sh",
        "-ec",
        "g++ --version
         ls {nvrtc}/lib/python3*/site-packages/nvidia/nccl/include/nccl.h {nvrtc}/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2
         {nvrtc}/bin/python -c 'import nccl.bindings.nccl, numpy'",
    ],
};

/// Compilers for C and C++ with their sanitizers, and CMake, for programs that use the C interface.
pub(super) const C_TOOLS: Tool = Tool {
    name: "gcc, g++, CMake, pkg-config and valgrind",
    installable: true,
    packages: &["gcc", "g++", "libc6-dev", "make", "cmake", "pkg-config", "binutils", "valgrind"],
    install: &[],
    probe: &[
        "sh",
        "-ec",
        "gcc --version; g++ --version; cmake --version; pkg-config --version; nm --version; valgrind --version",
    ],
};
