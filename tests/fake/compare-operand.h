/* CompareOperand: an array that a kernel reads or writes, on the host and on a device, in a larger
 * allocation whose other bytes nobody may touch. */
#pragma once
#include "exec/cuda/kernels/kernels.h"
#include "planner/base/dtype.h"
#include "tests/fake/compare.h"
#include <glib.h>
G_BEGIN_DECLS

/* What random numbers are drawn. */
typedef enum
{
  COMPARE_SMALL, /* in [-3, 3], many near 0 */
  COMPARE_UNIT,  /* in [-1, 1] */
  COMPARE_WIDE,  /* in [-12, 12] */
  COMPARE_TIES,  /* numbers of 5 bits times a scale that has no good inverse; at most 448 of it */
  COMPARE_POSITIVE,   /* in [0.2, 2] */
  COMPARE_BITS,       /* any bits: infinities, NaNs, numbers of any size */
  COMPARE_MAGNITUDES, /* the same, none of them below 0 */
  COMPARE_BYTES,      /* of what is no number: all the same */
  COMPARE_INDEX,      /* in [0, limit); with `minus` now and then -1 */
  COMPARE_SUM,        /* exact sums of squares */
} CompareDraw;

typedef struct
{
  PlanDtype dtype;
  CompareDraw draw;
  gint32 limit;
  gboolean minus;
  gboolean is_whole;    /* begins where a piece of 16 bytes does; else anywhere, now and then */
  guint64 count, bytes; /* bytes: of the array */
  /* Of an array with scales of blocks: its matrix, so that the device has the scales in tiles where
   * those are whole, and the host in row order. 0: always in row order. */
  guint64 rows, cols;
  /* The allocations: what was in them, what the CPU made of it, what the device did. */
  guint8 *before, *want, *got, *device;
  guint64 at; /* of the array, in each of them */
  float want_scale, got_scale;
  float *device_scale; /* and room behind it */
} CompareOperand;

/* In place: scales of `cols` blocks for each of `rows` rows, from row order to tiles or back; not
 * where tiles are not whole. */
void compare_tile_scales (guint8 *scales, guint64 rows, guint64 cols, gboolean is_back);

/* One of those that kernels compute in: fp32, bf16, fp16. */
PlanDtype compare_format (GRand *rand);

void compare_operand_init (CompareOperand *self, const CompareDevice *device, GRand *rand);
void compare_operand_clear (CompareOperand *self, const CompareDevice *device);

/* Makes what the CPU made of it so far its contents from the beginning. */
void compare_operand_keep (CompareOperand *self, const CompareDevice *device);

/* Fetches what the device made of it. */
void compare_operand_fetch (CompareOperand *self, const CompareDevice *device);

/* Runs an op on the CPU and on the device, with its operands beside what `args` has, and fetches
 * them; NULL: absent. */
void compare_operands_run (CompareOperand *const *operands, guint n, const ExecArgs *args,
                           ExecCudaLaunch launch, const CompareDevice *device);

double compare_operand_want (const CompareOperand *self, guint64 i);
double compare_operand_largest (const CompareOperand *self); /* magnitude of the CPU's */

/* |got - want| <= absolute + relative * |want|; both 0: the same bits, but whichever NaN where
 * `any_nan`. Fails the test with `what`. */
typedef struct
{
  double absolute, relative;
  gboolean any_nan;
} CompareBound;

void compare_operand_check (const CompareOperand *self, CompareBound bound, const char *what);

G_END_DECLS
