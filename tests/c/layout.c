/* How structures lie in memory: what compiled programs rely on. A line that does not hold any more is a new major number of
 * the binary interface; new fields of a structure with a size come at its end, and raise the minor number. No structure has
 * bytes that are no field's: initialisers leave them as they were, and a field of a later version would read them. */
#pragma GCC diagnostic error "-Wpadded"
#include <antiphon.h>

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)

SIZE(antiphon_result, 4);
SIZE(antiphon_verdict, 4);
SIZE(antiphon_dtype, 4);
SIZE(antiphon_op, 4);
SIZE(antiphon_switch, 4);

SIZE(antiphon_format, 4);

SIZE(antiphon_unique_id, 128);
AT(antiphon_unique_id, bytes, 0);

AT(antiphon_config, struct_size, 0);
AT(antiphon_config, timeout_ms, 8);
AT(antiphon_config, verification, 16);
AT(antiphon_config, process_access, 20);
AT(antiphon_config, wire, 24);
AT(antiphon_config, network_interface, 32);
AT(antiphon_config, reproducible, 40);
AT(antiphon_config, reserved, 44);
AT(antiphon_config, device, 48);
AT(antiphon_config, block_threads, 56);
AT(antiphon_config, tags, 64);
AT(antiphon_config, tag_count, 72);
AT(antiphon_config, kernels, 80);
AT(antiphon_config, multicast, 88);
AT(antiphon_config, legacy_ipc, 92);
AT(antiphon_config, name, 96);
SIZE(antiphon_config, 104);

AT(antiphon_terms, struct_size, 0);
AT(antiphon_terms, name, 8);
AT(antiphon_terms, tags, 16);
AT(antiphon_terms, tag_count, 24);
AT(antiphon_terms, min_bytes, 32);
AT(antiphon_terms, max_bytes, 40);
AT(antiphon_terms, dtypes, 48);
AT(antiphon_terms, dtype_count, 56);
AT(antiphon_terms, ops, 64);
AT(antiphon_terms, op_count, 72);
AT(antiphon_terms, world, 80);
AT(antiphon_terms, ranks_per_node, 84);
AT(antiphon_terms, in_place, 88);
AT(antiphon_terms, has_root, 92);
AT(antiphon_terms, root, 96);
AT(antiphon_terms, reserved, 100);
SIZE(antiphon_terms, 104);

AT(antiphon_question, struct_size, 0);
AT(antiphon_question, collective, 8);
AT(antiphon_question, bytes, 16);
AT(antiphon_question, dtype, 24);
AT(antiphon_question, op, 28);
AT(antiphon_question, in_place, 32);
AT(antiphon_question, premultiplied, 36);
AT(antiphon_question, root, 40);
AT(antiphon_question, world, 44);
AT(antiphon_question, nodes, 48);
AT(antiphon_question, candidate_count, 52);
AT(antiphon_question, candidates, 56);
AT(antiphon_question, send_buffer, 64);
AT(antiphon_question, receive_buffer, 72);
AT(antiphon_question, tags, 80);
AT(antiphon_question, tag_count, 88);
AT(antiphon_question, reproducible, 96);
AT(antiphon_question, reserved, 100);
SIZE(antiphon_question, 104);

AT(antiphon_code, struct_size, 0);
AT(antiphon_code, name, 8);
AT(antiphon_code, version, 16);
AT(antiphon_code, collective, 24);
AT(antiphon_code, run, 32);
AT(antiphon_code, context, 40);
AT(antiphon_code, destroy, 48);
AT(antiphon_code, serves_devices, 56);
AT(antiphon_code, reserved, 60);
SIZE(antiphon_code, 64);

AT(antiphon_code_call, struct_size, 0);
AT(antiphon_code_call, executor, 8);
AT(antiphon_code_call, stream, 16);
AT(antiphon_code_call, send_buffer, 24);
AT(antiphon_code_call, send_bytes, 32);
AT(antiphon_code_call, receive_buffer, 40);
AT(antiphon_code_call, receive_bytes, 48);
AT(antiphon_code_call, dtype, 56);
AT(antiphon_code_call, op, 60);
AT(antiphon_code_call, in_place, 64);
AT(antiphon_code_call, root, 68);
AT(antiphon_code_call, rank, 72);
AT(antiphon_code_call, world, 76);
AT(antiphon_code_call, native_stream, 80);
AT(antiphon_code_call, device, 88);
AT(antiphon_code_call, recorded, 92);
AT(antiphon_code_call, send_counts, 96);
AT(antiphon_code_call, send_offsets, 104);
AT(antiphon_code_call, receive_counts, 112);
AT(antiphon_code_call, receive_offsets, 120);
SIZE(antiphon_code_call, 128);

int main(void)
{
    return 0;
}
