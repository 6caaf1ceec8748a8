/* EXEC_WIDE: before a function that loops over a block of numbers. It is compiled for several
 * generations of processors, of which the running one takes its own; the bits are the same, as
 * nothing is reordered and no product is fused with a sum. */
#pragma once

#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ \
    && !defined __SANITIZE_THREAD__
#define EXEC_WIDE __attribute__ ((target_clones ("avx512f", "avx2", "default")))
#else
#define EXEC_WIDE
#endif
