-- Subscriptions: subid -> `credit bounces qos jid`; of one that comes through a collection `credit bounces qos:length jid pool`,
-- where the length is the JID's (see `pools`).
local subscriptions = {}

function subscriptions.read(subid, line)
  local limit, bounces, qos, length, jid = string.match(line, '^(%d+) (%d+) (%a+):?(%d*) (.*)$')
  local found = {subid = subid, limit = tonumber(limit), bounces = tonumber(bounces), qos = qos, jid = jid}
  if length ~= '' then found.jid, found.pool = string.sub(jid, 1, length), string.sub(jid, length + 2) end
  return found
end

-- Whether it is a reader's, who is handed no items to work on: then `stream` stands in the place of its quality of service.
function subscriptions.reads(subscriber)
  return subscriber.qos == 'stream'
end

-- Whether it is one who comes for what it holds, a lease over HTTP: then `pulled` stands there, and nothing is sent to it.
function subscriptions.pulls(subscriber)
  return subscriber.qos == 'pulled'
end

-- Whether it has let items run out that were set aside for it, and has not come for items since. Such a one is handed nothing.
-- Its bounces count that: what it does not fetch has not reached it.
function subscriptions.absent(subscriber)
  return subscriber.bounces > 0 and subscriptions.pulls(subscriber)
end

-- Whether its deliveries are to be confirmed by it.
function subscriptions.confirms(subscriber)
  return subscriber.qos == 'acknowledged' or subscriber.qos == 'assured'
end

function subscriptions.get(subid)
  local line = redis.call('HGET', key.subscribers, subid)
  return line and subscriptions.read(subid, line) or nil
end

-- One whom a delivery reached starts its bounces anew; one who comes for items does so when it fetches.
function subscriptions.reached(subscriber)
  if subscriber.bounces == 0 then return end
  subscriber.bounces = 0
  subscriptions.put(subscriber)
end

-- One that comes for items has let one run out.
function subscriptions.missed(subid)
  local subscriber = subscriptions.get(subid)
  if not subscriber or subscriber.bounces > 0 then return end
  subscriber.bounces = 1
  subscriptions.put(subscriber)
end

-- Writes a subscription; `bounces` are those since something last reached it.
function subscriptions.put(subscriber)
  local qos, whose = subscriber.qos, subscriber.jid
  if subscriber.pool then qos, whose = qos .. ':' .. #whose, whose .. ' ' .. subscriber.pool end
  redis.call('HSET', key.subscribers, subscriber.subid,
    string.format('%d %d %s ', subscriber.limit, subscriber.bounces, qos) .. whose)
end
