-- Sent marks: up to which sequence a frontend's deliveries are surely sent. `-` takes the mark back: the frontend is about
-- to resign, and what has left the list of frontends is never rescued.
local send_marks = {}

function send_marks.record()
  if arg.sent == '-' then
    sessions.forget(arg.frontend)
  elseif arg.sent ~= '' then
    redis.call('HSET', key.sent, arg.frontend, arg.sent)
  end
end
