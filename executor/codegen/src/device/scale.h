// The first step of a premultiplied sum: a product of two sources.
AP_KERNEL(512) antiphon_scale(u64 output, u64 input, u64 elements, u64 factor_at, u64 factor) {
    union {
        u64 bits;
        Stored stored;
    } given;
    given.bits = factor;
    const Wide by = widened(factor_at ? *(const Stored *)factor_at : given.stored);
    const Stored *from = (const Stored *)input;
    Stored *to = (Stored *)output;
    const u64 stride = (u64)AP_BLOCKS() * AP_THREADS();
    for (u64 i = (u64)AP_BLOCK() * AP_THREADS() + AP_THREAD(); i < elements; i += stride) {
        to[i] = narrowed(product_of(widened(from[i]), by));
    }
}
