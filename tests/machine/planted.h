/* Faults that a test plants in a kernel of Blackwell. */
#ifndef MACHINE_PLANTED_H
#define MACHINE_PLANTED_H

namespace machine {

/* What a kernel's wrappers of Blackwell's instructions leave out or do wrong, so that a test can see the model say so (ptx.h). */
enum class Planted {
    nothing, scales_not_copied, load_not_waited_for, store_not_waited_for, no_fence_before, no_fence_after, no_proxy_fence, commit_left_out,
    not_freed, scales_of_rows_not_stored, first_scale_of_a, first_scale_of_b, atoms_of_b_swapped, scales_of_a_for_b, groups_do_not_meet,
    overwrites_sums, count
};
extern Planted planted;

} // namespace machine

#endif
