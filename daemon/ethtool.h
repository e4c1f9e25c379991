/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A network driver's own counters, as `ethtool -S` shows them. Takes no privilege. */

#include "util.h"

/* name is cleaned of nothing: it is the driver's, NUL-terminated; valid during the call only. */
typedef void (*ethtool_counter_t)(const char *name, uint64_t value, void *userdata);

/* Hands over every counter of the interface, of the current network namespace. -EOPNOTSUPP where
 * the driver has none, -ENODEV, -EINVAL for a name that cannot be one, -E2BIG beyond a bound. */
int ethtool_read(const char *interface, ethtool_counter_t each, void *userdata);
