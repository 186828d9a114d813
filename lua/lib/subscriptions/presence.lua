-- Sets how long the online resources of a JID are remembered: while it has subscriptions, else for `idle_seconds`.
local presence = {}

function presence.keep()
  if redis.call('EXISTS', key.nodes) == 1 then
    redis.call('PERSIST', key.resources)
  else
    redis.call('EXPIRE', key.resources, arg.idle_seconds)
  end
end
