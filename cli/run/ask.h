/* What the cuDNN that this program runs with wants of memory for a plan's attention, asked before
 * the plan is made: another version than the one that figures are known of may want more, and
 * without room for it attention is done by batched products. */
#pragma once
#include "advise/input.h"
G_BEGIN_DECLS

/* For this thread's GPU. NULL: there is no cuDNN here, or it has no such attention. The caller
 * frees. */
PlanWorkspaces *cli_ask_linked (const AdviseInput *input);

G_END_DECLS
