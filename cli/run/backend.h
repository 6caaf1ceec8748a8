/* CliBackend: the backend of an execution program; each program links one. */
#pragma once
#include "exec/comm.h"
#include "exec/kernels.h"
#include "planner/cluster/cluster.h"
#include "planner/schedule/workspaces.h"
#include <glib.h>
G_BEGIN_DECLS

/* Asks cuDNN about causal attention, also on GPUs that are not there. */
typedef struct
{
  guint (*version) (void);
  const gint64 *capabilities;           /* known ones, ended by 0; 90 is 9.0 */
  gboolean (*prepare) (GError **error); /* called first */
  gboolean (*ask) (gint64 capability, PlanWorkspace *io_row, GError **error);
  gboolean (*ask_here) (PlanWorkspace *io_row, GError **error); /* on this thread's GPU */
} CliCudnn;

typedef struct
{
  const ExecKernels *kernels;
  PlanDeviceKind device;

  /* For ranks that are processes: the communicator's name, whether a launcher started this process
   * as one of several, and how to open this process's rank. */
  const char *process_comm;
  gboolean (*is_launched) (void);
  ExecComm *(*open_process) (guint timeout_s, GError **error);

  /* Makes the communicator of a rank that is a thread, where the backend has one; see ExecJob. */
  ExecComm *(*join) (ExecComm *threads, GError **error);
  void (*before_join) (void); /* called before any other function of the backend; NULL: nothing */

  /* NULL: there is no cuDNN in this program. */
  const CliCudnn *cudnn;

  /* Describes `nodes` machines like this one for `ranks` ranks, which share a device or have one
   * each. `per_host` is the most ranks on one host if they are processes; 0: they are threads. */
  PlanCluster *(*describe_machine) (gint64 ranks, gint64 nodes, gint64 per_host, gboolean share,
                                    GError **error);
} CliBackend;

extern const CliBackend cli_backend;

G_END_DECLS
