/* Random numbers that are functions of where they are used: Philox 4x32-10 (Salmon, Moraes, Dror
 * and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011). Whoever asks for the number of a
 * token and a column gets the same one, on whichever rank, in whichever pass; none is kept. */
#pragma once
#include "planner/schedule/op.h"
#include <glib.h>
G_BEGIN_DECLS

/* Four numbers of a counter. */
void exec_random_block (const guint32 key[PLAN_RANDOM_KEY], const guint32 counter[4],
                        guint32 out[4]);

/* The key of a layer, by its number in the whole model; -1 is the embedding. */
void exec_random_key (guint64 seed, gint64 layer, guint32 out[PLAN_RANDOM_KEY]);

/* The site of the first head; a layer's sites before it are those of its other dropouts. */
#define EXEC_FIRST_HEAD_SITE 2

/* A place where elements are dropped: one of a layer's sites. */
typedef struct
{
  const guint32 *key;
  guint32 site;
  guint32 limit; /* an element is dropped if its number is below this */
  float scale;   /* which the others are multiplied by; 0 if all are dropped */
} ExecDropout;

ExecDropout exec_dropout (const void *key, guint32 site, double rate);

/* What each of `count` elements from column `first` on is multiplied by, 0 or `scale`. `token`: the
 * number of the row's token in the run. */
void exec_dropout_factors (const ExecDropout *self, guint64 token, guint64 first, guint64 count,
                           float *out);

G_END_DECLS
