/* The CUDA launchers against exec_kernels_cpu, on whatever stands for the device: the same cases
 * for the fake one and for a real one. */
#pragma once
#include "planner/schedule/op.h"
#include <check.h>
#include <glib.h>
#include <stdio.h>
G_BEGIN_DECLS

typedef struct
{
  gboolean own_math; /* its expf, pow, sin and cos are not the CPU's: no bit claims for them */
  void *(*take) (guint64 bytes);
  void (*give) (void *memory);
  void (*copy) (void *to, const void *from, guint64 bytes); /* to or from the device */
  const char *(*wait) (void); /* for all that was launched; what went wrong, or NULL */
} CompareDevice;

/* Adds a case per op, named as the op is (CK_RUN_CASE=rope), of loops over seeds, each after
 * `setup` (or NULL). One device per process. */
void compare_add_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* Prints a line of bytes per second, over `repeats` calls, for a copy, and for every kernel, beside
 * it, on matrices of `rows` rows of 4096 elements, and returns how many lines. */
guint compare_speed (const CompareDevice *device, gint64 rows, guint repeats, FILE *out);

gboolean compare_has_kernel (PlanOpKind kind); /* whether that is one of those cases */

/* tests/fake/compare-activation.c: activations where little is left of their argument. */
void compare_add_activation_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-experts.c: the router, and rows sorted by expert and back. */
void compare_add_expert_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-narrow.c: those of the above that no table says. */
void compare_add_narrow_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-norms.c: kernels of norms that add are the kernels of two ops. */
void compare_add_norm_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-split.c: parts of a vocabulary and of rows. */
void compare_add_split_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-squares.c: of formats with a scale for 128 elements, or a square of them. */
void compare_add_square_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* "case NAME", a line each: what compare_add_tests adds, and "speed". */
void compare_print_cases (void);

G_END_DECLS
