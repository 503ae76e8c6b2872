"""Environments for the tests of workers: they start processes of their own."""

import ctypes
import multiprocessing
import os
import subprocess
import time

from small_envs import Dice


def snooze() -> None:
    time.sleep(600)


class Parent(Dice):
    """Obeys words in the response: starts a process in one of three ways, or dies."""

    def reset(self, *, seed=None, options=None):
        self.child = None
        return super().reset(seed=seed)

    def step(self, response):
        if "fork" in response:
            self.child = multiprocessing.get_context("fork").Process(target=snooze)
            self.child.start()
            response += f" {self.child.pid}"
        if "program" in response:
            program = subprocess.Popen(["sleep", "600"])
            program.terminate()
            response += f" {program.wait()}"
        if "stop" in response:
            self.child.terminate()
            self.child.join()
            response += f" {self.child.exitcode}"
        if "leak" in response:  # a child that Python does not know of keeps all files open
            libc = ctypes.PyDLL(None)
            if libc.fork() == 0:
                libc.sleep(20)
                libc._exit(0)
            os._exit(7)
        return super().step(response)
