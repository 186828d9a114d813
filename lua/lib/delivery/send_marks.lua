-- Sent marks: the sequence up to which a frontend has surely sent its deliveries. `-` removes the mark of a frontend that is about to
-- stop: nobody takes over from one that has left the list of frontends.
local send_marks = {}

function send_marks.record()
  if arg.sent == '-' then
    sessions.forget(arg.frontend)
  elseif arg.sent ~= '' then
    redis.call('HSET', key.send_marks, arg.frontend, arg.sent)
  end
end
