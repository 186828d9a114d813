-- Sent marks: up to which sequence a frontend has written its deliveries to its socket.
-- NEEDS: sent
local sent = {}

function sent.mark()
  if arg.sent ~= '' then redis.call('HSET', key.sent, arg.frontend, arg.sent) end
end
