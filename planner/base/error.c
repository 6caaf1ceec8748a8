/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "planner/base/error.h"

G_DEFINE_QUARK (fsdplan - error - quark, plan_error)
