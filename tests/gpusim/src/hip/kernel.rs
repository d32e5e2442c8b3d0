//! HIP's modules and launches.

use super::cu;
use crate::abi::{In, Out};
use crate::kernel::launch::{
    Request, cuLaunchKernel, cuOccupancyMaxActiveBlocksPerMultiprocessor, submit,
};
use crate::kernel::module::{
    cuFuncGetAttribute, cuModuleGetFunction, cuModuleLoadData, cuModuleUnload,
};
use std::ffi::c_char;

hip_calls! {
    fn hipModuleLoadData(out: Out<u64>, image: In<u8>) {
        cu(cuModuleLoadData(out, image))
    }

    fn hipModuleUnload(module: u64) {
        cu(cuModuleUnload(module))
    }

    fn hipModuleGetFunction(out: Out<u64>, module: u64, name: In<c_char>) {
        cu(cuModuleGetFunction(out, module, name))
    }

    fn hipFuncGetAttribute(out: Out<i32>, attribute: u32, function: u64) {
        cu(cuFuncGetAttribute(out, attribute, function))
    }

    fn hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        out: Out<i32>,
        function: u64,
        threads: i32,
        shared_bytes: usize,
    ) {
        cu(cuOccupancyMaxActiveBlocksPerMultiprocessor(out, function, threads, shared_bytes))
    }

    fn hipModuleLaunchKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: u64,
        parameters: In<In<u8>>,
        extra: In<u8>,
    ) {
        cu(cuLaunchKernel(
            function,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            stream,
            parameters,
            extra,
        ))
    }

    fn hipModuleLaunchCooperativeKernel(
        function: u64,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: u64,
        parameters: In<In<u8>>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        submit(
            &Request {
                function,
                grid,
                block,
                shared_bytes,
                stream,
                parameters,
                cooperative: true,
                // One queue of the device takes those of all streams.
                alone: true,
            },
            In::none(),
        )
    }
}
