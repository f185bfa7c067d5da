// Asks Countersign before a tool runs. countersign hook install opencode writes this file.
import { spawn } from "node:child_process"

const program = PROGRAM
const tools = TOOLS

// ask returns the bot's answer, or nothing where there is none.
function ask(question) {
  return new Promise((done) => {
    const child = spawn(program[0], program.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    let out = ""
    child.stdout.on("data", (piece) => (out += piece))
    child.on("error", () => done(undefined))
    child.on("close", () => {
      try {
        done(JSON.parse(out))
      } catch {
        done(undefined)
      }
    })
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(question))
  })
}

export const Countersign = async ({ directory }) => ({
  "tool.execute.before": async (input, output) => {
    if (!tools.includes(input.tool)) return
    const answer = await ask({
      session_id: input.sessionID, cwd: directory, hook_event_name: "tool.execute.before", tool_name: input.tool, tool_input: output.args,
    })
    // opencode runs what it may run without a prompt, so without an answer nothing runs.
    if (!answer) throw new Error("The Countersign hook failed, so this was not run.")
    if (answer.decision !== "allow") throw new Error(answer.reason)
    if (answer.command) output.args.command = answer.command
  },
})
