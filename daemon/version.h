/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The version of this build; one object knows it, so that a commit rebuilds one object. */

const char *nodewhy_version(void);
