// The last step of an average.
AP_KERNEL(512) antiphon_divide(u64 output, u64 elements, u32 ranks) {
    Stored *all = (Stored *)output;
    const u64 stride = (u64)AP_BLOCKS() * AP_THREADS();
    for (u64 i = (u64)AP_BLOCK() * AP_THREADS() + AP_THREAD(); i < elements; i += stride) {
        all[i] = narrowed(divided(widened(all[i]), ranks));
    }
}
