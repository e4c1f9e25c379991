/* SPDX-License-Identifier: Apache-2.0 */
#include "version.h"

const char *nodewhy_version(void)
{
	return VERSION;
}
