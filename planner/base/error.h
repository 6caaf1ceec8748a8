/* PlanError: the one error domain of the program.
 *
 * Codes are chosen by what a caller would do about it, so every folder shares
 * them. A message is lower case, has no full stop and names the thing at fault;
 * only cli prints it. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

#define PLAN_ERROR (plan_error_quark ())

typedef enum
{
  PLAN_ERROR_INVALID,     /* the user's input is wrong */
  PLAN_ERROR_INFEASIBLE,  /* legal, but does not fit */
  PLAN_ERROR_UNSUPPORTED, /* not in this build, version or device */
  PLAN_ERROR_IO,          /* a file could not be read or written */
  PLAN_ERROR_BACKEND,     /* BLAS, MPI, CUDA, NCCL or SQLite said no */
  PLAN_ERROR_CORRUPT,     /* stored data breaks its own rules */
  PLAN_ERROR_STOPPED,     /* somebody asked to end early, and it did so in good order */
} PlanErrorCode;

GQuark plan_error_quark (void);

G_END_DECLS
