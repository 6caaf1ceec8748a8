/* Compares the CUDA launchers with exec_kernels_cpu, on the fake device or on a real GPU, by the
 * same cases. */
#pragma once
#include "planner/schedule/op.h"
#include <check.h>
#include <glib.h>
#include <stdio.h>
G_BEGIN_DECLS

typedef struct
{
  gboolean own_math; /* expf, pow, sin and cos are the device's own, so results are near the CPU's,
                        not equal */
  void *(*take) (guint64 bytes);
  void (*give) (void *memory);
  void (*copy) (void *to, const void *from, guint64 bytes); /* to or from the device */
  const char *(*wait) (
      void); /* waits until all launches have ended; returns an error message, or NULL */
} CompareDevice;

/* Adds a test case for each op, with its name (CK_RUN_CASE=rope): a loop over seeds, each of which
 * begins with `setup`, if that is not NULL. A process has one device. */
void compare_add_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* Prints bytes per second over `repeats` calls on matrices of `rows` rows of 4096 elements: a
 * line for a copy, and one for every kernel with the copy's rate beside it. Returns the number
 * of lines. */
guint compare_speed (const CompareDevice *device, gint64 rows, guint repeats, FILE *out);

gboolean compare_has_kernel (PlanOpKind kind); /* whether the op has a test case */

/* tests/fake/compare-activation.c: activations where little is left of their argument. */
void compare_add_activation_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-experts.c: the router, and rows sorted by expert and back. */
void compare_add_expert_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-narrow.c: formats of few bits. */
void compare_add_narrow_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-params.c: all parameters of a unit in one launch. */
void compare_add_params_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-norms.c: a kernel that adds and norms equals two kernels, one of which adds
 * and one norms. */
void compare_add_norm_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-largest.c: ops that find the largest magnitude of what they store. */
void compare_add_largest_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-split.c: parts of a vocabulary and of rows. */
void compare_add_split_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* tests/fake/compare-squares.c: formats with a scale for 128 elements, or for a square of them. */
void compare_add_square_tests (Suite *suite, const CompareDevice *device, SFun setup);

/* Prints "case NAME" for each test case that compare_add_tests adds, and "speed", a line each. */
void compare_print_cases (void);

G_END_DECLS
