-- Subscriptions: subid -> `credit bounces sending jid`. `sending` is the quality of service, followed by the most items in one stanza if
-- that is not 1.
local subscriptions = {}

function subscriptions.read(subid, line)
  local limit, bounces, qos, batch, jid = string.match(line, '^(%d+) (%d+) (%a+)(%d*) (.*)$')
  local found = {subid = subid, limit = tonumber(limit), bounces = tonumber(bounces), qos = qos, jid = jid}
  if batch ~= '' then found.batch = batch end
  return found
end

-- Returns the quality of service and the most items in one stanza, nil for 1, of the word that contains both.
function subscriptions.parse_sending(word)
  local qos, batch = string.match(word, '^(%a+)(%d*)$')
  return qos, batch ~= '' and batch or nil
end

-- Returns the word.
function subscriptions.sending(subscriber)
  return subscriber.batch and subscriber.qos .. subscriber.batch or subscriber.qos
end

-- Whether it is a log reader's, which gets no items to work on: its quality of service is `stream`.
function subscriptions.reads(subscriber)
  return subscriber.qos == 'stream'
end

-- Whether it is a pull subscription, a lease over HTTP or a link over AMQP: its quality of service is `pulled`. Nothing is sent to it, and
-- it has no turn: it receives.
function subscriptions.pulls(subscriber)
  return subscriber.qos == 'pulled'
end

-- Whether its deliveries need confirmation.
function subscriptions.confirms(subscriber)
  return subscriber.qos == 'acknowledged' or subscriber.qos == 'assured'
end

function subscriptions.get(subid)
  local line = redis.call('HGET', key.subscribers, subid)
  return line and subscriptions.read(subid, line) or nil
end

-- Resets the bounces of a subscriber that a delivery has reached.
function subscriptions.reset_bounces(subscriber)
  if subscriber.bounces == 0 then return end
  subscriber.bounces = 0
  subscriptions.put(subscriber)
end

-- Stores a subscription; `bounces` are those since a delivery last reached it.
function subscriptions.put(subscriber)
  redis.call('HSET', key.subscribers, subscriber.subid,
    string.format('%d %d %s ', subscriber.limit, subscriber.bounces, subscriptions.sending(subscriber)) .. subscriber.jid)
end
