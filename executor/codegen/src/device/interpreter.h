// The interpreting kernel: blocks that walk along a table of steps.

AP_INLINE void call(const Launch &l, const Step &s, const u32 *o, Window w);

// Every thread of the block does it, each on its own.
AP_INLINE void walk(const Launch &l, const Step *at, const u32 *o) {
    Window w = NO_WINDOW;
    // The pipeline that the block is in: its first step, its operands, the windows done and all of them.
    const Step *first = at;
    const u32 *pipeline = o;
    u64 done = 0, windows = 0;
    for (;;) {
        const Step s = *at++;
        switch (s.call) {
        case STEP_END: return;
        case STEP_PIPELINE:
            windows = loop_count(l, o);
            if (windows == 0) {
                at += s.one;
                o += s.words + s.two;
                break;
            }
            first = at;
            pipeline = o;
            done = 0;
            w = loop_window(pipeline, 0);
            o += s.words;
            break;
        case STEP_AGAIN:
            if (++done < windows) {
                at = first;
                o = pipeline + PIPELINE_WORDS;
                w = loop_window(pipeline, done);
            } else {
                w = NO_WINDOW;
            }
            break;
        default:
            call(l, s, o, w);
            o += s.words;
        }
    }
}

