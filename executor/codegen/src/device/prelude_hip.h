// What HIP says in its own way: types, memory order, threads.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

#define AP_INLINE static __device__ __attribute__((always_inline)) inline
// Functions that are called rather than inlined, so that long programs compile in short time.
#ifdef AP_INLINED
#define AP_DEVICE AP_INLINE
#else
#define AP_DEVICE static __device__ __attribute__((noinline))
#endif
#define AP_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
// A parameter that is a struct.
#define AP_PARAMETER const
// One thing for each block, and the function that finds it.
#define AP_SHARED(type, name)            \
    static __shared__ type name##_shared; \
    AP_INLINE type &name() { return name##_shared; }
// What a wave has written is there for the device before the block meets: the meeting by itself does not wait for other waves'
// stores, which a release by one thread behind it is to cover.
#define AP_SYNC() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"), __syncthreads())
#define AP_BLOCK() (blockIdx.x)
#define AP_BLOCKS() (gridDim.x)
#define AP_THREAD() (threadIdx.x)
#define AP_THREADS() (blockDim.x)
// Threads of a block that may keep each other from going on while one of them waits: a wave's.
#define AP_IN_STEP() ((u32)warpSize)

struct alignas(16) Vector {
    u32 word[4];
};

// Two units of packets.
struct alignas(16) Pair {
    u64 first, second;
};

AP_INLINE void pause_briefly() { __builtin_amdgcn_s_sleep(1); }

AP_INLINE Vector load_vector(const void *from) { return *(const Vector *)from; }
AP_INLINE void store_vector(void *to, const Vector &v) { *(Vector *)to = v; }

// What lies in raw areas, where not by vectors.
template <class T> AP_INLINE T load_plain(const void *from) { return *(const T *)from; }
template <class T> AP_INLINE void store_plain(void *to, T value) { *(T *)to = value; }

// Two units of packets. Each appears whole, in no order.
AP_INLINE Pair load_pair(const void *from) {
    const u64 *units = (const u64 *)from;
    Pair pair;
    pair.first = __atomic_load_n(units, __ATOMIC_RELAXED);
    pair.second = __atomic_load_n(units + 1, __ATOMIC_RELAXED);
    return pair;
}
AP_INLINE void store_pair(void *to, const Pair &pair) {
    u64 *units = (u64 *)to;
    __atomic_store_n(units, pair.first, __ATOMIC_RELAXED);
    __atomic_store_n(units + 1, pair.second, __ATOMIC_RELAXED);
}

AP_INLINE u64 load_relaxed(const u64 *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
AP_INLINE u64 load_acquire(const u64 *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
AP_INLINE u32 load_word(const u32 *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
AP_INLINE void store_word(u32 *to, u32 value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
AP_INLINE void store_relaxed(u64 *to, u64 value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
AP_INLINE void store_release(u64 *to, u64 value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
AP_INLINE void fence_release() { __atomic_thread_fence(__ATOMIC_RELEASE); }
AP_INLINE void add_release(u64 *to, u64 value) { __atomic_fetch_add(to, value, __ATOMIC_RELEASE); }
AP_INLINE void add_relaxed(u64 *to, u64 value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
AP_INLINE void raise_release(u64 *to, u64 value) { __atomic_fetch_max(to, value, __ATOMIC_RELEASE); }
AP_INLINE u64 claim(u64 *to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

// Adds where only this device looks; what was there before.
AP_INLINE u64 fetch_add(u64 *to, u64 value) {
    return __hip_atomic_fetch_add(to, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
AP_INLINE u64 fetch_add_relaxed(u64 *to, u64 value) {
    return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
AP_INLINE u32 fetch_add_word(u32 *to, u32 value) {
    return __hip_atomic_fetch_add(to, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}

// Words of the block's shared memory that its threads change at any time.
AP_INLINE u32 load_shared(const u32 *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
AP_INLINE void store_shared(u32 *to, u32 value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
AP_INLINE u32 add_shared(u32 *to, u32 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }

// Two 16-bit floats are a word, the first of them its lower half.
typedef _Float16 Halves __attribute__((ext_vector_type(2)));

AP_INLINE void f16x2_to_f32(u32 word, float &low, float &high) {
    Halves halves;
    __builtin_memcpy(&halves, &word, 4);
    low = (float)halves.x;
    high = (float)halves.y;
}

AP_INLINE u32 mul_f16x2(u32 a, u32 b) {
    Halves left, right;
    __builtin_memcpy(&left, &a, 4);
    __builtin_memcpy(&right, &b, 4);
    left *= right;
    __builtin_memcpy(&a, &left, 4);
    return a;
}

AP_INLINE u16 f32_to_f16(float value) {
    _Float16 narrow = (_Float16)value;
    u16 bits;
    __builtin_memcpy(&bits, &narrow, 2);
    return bits;
}

AP_INLINE float as_float(u32 bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

AP_INLINE u32 as_bits(float value) {
    u32 bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}
