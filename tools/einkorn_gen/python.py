# SPDX-License-Identifier: Apache-2.0
def generate(ops):
    return {}
