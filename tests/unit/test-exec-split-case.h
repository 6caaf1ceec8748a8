/* Runs of models on ranks that split layers, stages or experts, and their comparison with the
 * evaluator. */
#pragma once
#include "exec/walk/exec.h"
#include "tests/case.h"
G_BEGIN_DECLS

typedef struct
{
  PlanModel *model;
  PlanCluster *cluster;
  PlanCase *of;
  ExecJob job;
} Case;

/* Makes the case of a plan, of fp32 unless `words` say otherwise, and a job of some steps. What is
 * no case aborts the test. */
void case_init_on (Case *c, guint ranks, const char *model, const char *words, gint64 steps);
void case_clear (Case *c);

/* Runs three steps on at most eight ranks as threads, each with an evaluation, and compares losses,
 * norms and weights with the evaluator's, bit for bit, and bytes taken with those predicted. */
void compare_split (const char *model, guint ranks, const char *words);

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC (Case, case_clear)

G_END_DECLS
