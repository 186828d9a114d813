-- Begins a consumer's subscription in a partition.
local subscribing = {}

-- Returns nil for a log reader's subscription, which ends when the consumer's begins.
function subscribing.find(subid)
  local subscriber = subscriptions.get(subid)
  return subscriber and not subscriptions.reads(subscriber) and subscriber or nil
end

-- Stores it. A new one is idle until its credit is known.
function subscribing.put(subscriber, new)
  if new then
    reader_window.forget(subscriber.subid)
    if subscriptions.pulls(subscriber) then
      partition.turn_on('pulls')
    else
      redis.call('ZADD', key.idle_subscribers, 0, subscriber.subid)
    end
  end
  subscriptions.put(subscriber)
  if subscriptions.confirms(subscriber) then partition.turn_on('confirms') end
end
