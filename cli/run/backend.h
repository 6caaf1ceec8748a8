/* CliBackend: what one of the execution programs runs plans with; each links its own. */
#pragma once
#include "exec/comm.h"
#include "exec/kernels.h"
#include "planner/cluster/cluster.h"
#include "planner/schedule/workspaces.h"
#include <glib.h>
G_BEGIN_DECLS

/* What cuDNN says of causal attention on GPUs that need not be there. */
typedef struct
{
  guint (*version) (void);
  const gint64 *capabilities;           /* 90 is 9.0; 0 at the end */
  gboolean (*prepare) (GError **error); /* before the first question */
  gboolean (*ask) (gint64 capability, PlanWorkspace *io_row, GError **error);
  gboolean (*ask_here) (PlanWorkspace *io_row, GError **error); /* this thread's GPU */
} CliCudnn;

typedef struct
{
  const ExecKernels *kernels;
  PlanDeviceKind device;

  /* What joins ranks that are processes: its name, whether a launcher started this process as one
   * of several, and this process's rank. */
  const char *process_comm;
  gboolean (*is_launched) (void);
  ExecComm *(*open_process) (guint timeout_s, GError **error);

  /* The same between threads of this process, where it can; see ExecJob. */
  ExecComm *(*join) (ExecComm *threads, GError **error);
  void (*before_join) (void); /* before anything else of the backend is asked; NULL: nothing */

  /* NULL: there is no cuDNN in this program. */
  const CliCudnn *cudnn;

  /* `nodes` machines like this one for so many ranks, which share a device or have one each, as
   * those do that are processes: at most so many are on a host; 0: they are threads. */
  PlanCluster *(*describe_machine) (gint64 ranks, gint64 nodes, gint64 per_host, gboolean share,
                                    GError **error);
} CliBackend;

extern const CliBackend cli_backend;

G_END_DECLS
