/* CompareOperand: an array that a kernel reads or writes, on the host and on a device, in a larger
 * allocation whose other bytes nobody may touch. */
#pragma once
#include "exec/cuda/kernels/kernels.h"
#include "planner/base/dtype.h"
#include "tests/fake/compare.h"
#include <glib.h>
G_BEGIN_DECLS

/* Which random numbers an array holds. */
typedef enum
{
  COMPARE_SMALL, /* in [-3, 3], many near 0 */
  COMPARE_UNIT,  /* in [-1, 1] */
  COMPARE_WIDE,  /* in [-12, 12] */
  COMPARE_TIES,  /* numbers of 5 bits times a scale that has no good inverse; at most 448 of it */
  COMPARE_POSITIVE,   /* in [0.2, 2] */
  COMPARE_BITS,       /* any bits: infinities, NaNs, numbers of any size */
  COMPARE_MAGNITUDES, /* the same without a sign */
  COMPARE_BYTES,      /* of an array that holds no numbers: all bytes are equal */
  COMPARE_INDEX,      /* in [0, limit); with has_minus sometimes -1 */
  COMPARE_SUM,        /* exact sums of squares */
  COMPARE_PLACES,     /* of tokens in their documents, in sequences of `limit` tokens */
} CompareDraw;

typedef struct
{
  PlanDtype dtype;
  CompareDraw draw;
  gint32 limit;
  gboolean has_minus;   /* COMPARE_INDEX: some indices are -1 */
  gboolean is_aligned;  /* begins at a multiple of 16 bytes; else sometimes anywhere */
  guint64 count, bytes; /* bytes: of the array */
  /* The matrix whose blocks have the scales in this array: the device has them in tiles where tiles
   * are whole, the host in row order. 0: both have them in row order. */
  guint64 rows, cols;
  /* Allocations: the contents at first, the CPU's result, the device's, and the device's memory. */
  guint8 *before, *want, *got, *device;
  guint64 at; /* where the array begins in each of them */
  float want_scale, got_scale;
  float *device_scale; /* and room behind it */
} CompareOperand;

/* Moves the scales of `rows` rows of `cols` blocks from row order to tiles, or back, in place.
 * Where tiles are not whole, nothing moves. */
void compare_tile_scales (guint8 *scales, guint64 rows, guint64 cols, gboolean is_back);

/* Draws a format that kernels compute in: fp32, bf16 or fp16. */
PlanDtype compare_format (GRand *rand);

void compare_operand_init (CompareOperand *self, const CompareDevice *device, GRand *rand);
void compare_operand_clear (CompareOperand *self, const CompareDevice *device);

/* Makes the CPU's result the contents to start from, on host and device. */
void compare_operand_keep (CompareOperand *self, const CompareDevice *device);

/* Copies the device's result to the host. */
void compare_operand_fetch (CompareOperand *self, const CompareDevice *device);

/* Runs an op on the CPU and on the device and fetches the results. The operands are put into
 * `args`; one that is NULL is absent. */
void compare_operands_run (CompareOperand *const *operands, guint n, const ExecArgs *args,
                           ExecCudaLaunch launch, const CompareDevice *device);

double compare_operand_want (const CompareOperand *self, guint64 i);
double
compare_operand_largest (const CompareOperand *self); /* largest magnitude of the CPU's result */

/* |got - want| <= absolute + relative * |want|. Where both are 0 the bits must be the same, except
 * that with any_nan any NaN will do for a NaN. Fails the test with `what`. */
typedef struct
{
  double absolute, relative;
  gboolean any_nan;
} CompareBound;

void compare_operand_check (const CompareOperand *self, CompareBound bound, const char *what);

G_END_DECLS
