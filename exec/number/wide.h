/* EXEC_WIDE marks a function that loops over a block of numbers. It is compiled for several
 * generations of processors, and the program calls the one for the processor it runs on. All give
 * the same bits, since nothing is reordered and no multiplication is fused with an addition. */
#pragma once

#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ \
    && !defined __SANITIZE_THREAD__
#define EXEC_WIDE __attribute__ ((target_clones ("avx512f", "avx2", "default")))
#else
#define EXEC_WIDE
#endif
