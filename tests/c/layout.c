/* How structures lie in memory: what compiled programs rely on. A line that does not hold any more is a new major number of
 * the binary interface; new fields of a structure with a size come at its end, and raise the minor number. */
#include <antiphon.h>

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)

SIZE(antiphon_result, 4);
SIZE(antiphon_verdict, 4);
SIZE(antiphon_dtype, 4);
SIZE(antiphon_op, 4);
SIZE(antiphon_switch, 4);

SIZE(antiphon_unique_id, 128);
AT(antiphon_unique_id, bytes, 0);

AT(antiphon_config, struct_size, 0);
AT(antiphon_config, timeout_ms, 8);
AT(antiphon_config, verification, 16);
AT(antiphon_config, process_access, 20);
AT(antiphon_config, wire, 24);
AT(antiphon_config, network_interface, 32);
SIZE(antiphon_config, 40);

int main(void)
{
    return 0;
}
