-- How long it is kept which resources of a JID are here: as long as it is subscribed somewhere, else for `idle_seconds`.
local presence = {}

function presence.keep()
  if redis.call('EXISTS', key.nodes) == 1 then
    redis.call('PERSIST', key.resources)
  else
    redis.call('EXPIRE', key.resources, arg.idle_seconds)
  end
end
