/* The parameters of a unit that are quantised before they are gathered, and a rank's part of them:
 * what one op on parameters works on.
 *
 * A rank's part of a unit begins and ends anywhere, so it may hold all, some or none of a matrix.
 */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define EXEC_MAX_MATRICES 16 /* shapes of matrices in a unit */

/* A part of a parameter [rows, cols]: elements from `first` on, of which the op says how many. */
typedef struct
{
  guint64 rows, cols, first;
  guint block; /* elements of a block that shares a scale, or the side of a square; 0: one scale for
                  all */
} ExecParam;

/* Matrices of the same shape, one behind the other: one parameter, or a matrix per expert. */
typedef struct
{
  guint64 n, rows, cols;
  guint64 at;                    /* the first one's first element, in the unit */
  guint64 magnitude, magnitudes; /* the first one's first in the unit; how many each has */
  guint64 site;                  /* the quantiser of all of them, in the operands of sites */
  float *scale;                  /* of the first one; those of the others follow */
} ExecMatrices;

typedef struct
{
  guint64 from; /* the rank's part begins at this element of the unit */
  guint block;  /* as in ExecParam */
  guint n;
  ExecMatrices of[EXEC_MAX_MATRICES];
} ExecParams;

G_END_DECLS
