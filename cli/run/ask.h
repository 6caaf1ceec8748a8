/* Asks the cuDNN that this program is linked to how much workspace a plan's attention needs, before
 * the plan is made: another version than those with known figures may need more, and with less than
 * it needs attention would fall back to batched products. */
#pragma once
#include "advise/input.h"
G_BEGIN_DECLS

/* The workspaces on this thread's GPU. NULL: there is no cuDNN, or it has no kernel for such
 * attention. The caller frees. */
PlanWorkspaces *cli_ask_linked (const AdviseInput *input);

G_END_DECLS
