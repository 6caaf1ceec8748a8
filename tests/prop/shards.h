/* Where ranks keep their main weights: each in its shards, bucket by bucket. */
#pragma once
#include "exec/walk/exec.h"
#include <glib.h>
G_BEGIN_DECLS

/* Whether a rank's main weights are its part of the evaluator's, every replica's alike. */
gboolean shards_equal (const ExecJob *job, guint ranks, guint rank, const ExecResult *result,
                       const ExecResult *expected);

G_END_DECLS
